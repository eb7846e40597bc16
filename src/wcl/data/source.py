"""Image sources: images by number, with labels if there are any."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from wcl.data.decode import UnreadableImage
from wcl.data.levels import Levels
from wcl.data.planes import Picture, Planes
from wcl.ops.randomness import Integers, seed_of
from wcl.system.errors import InputError


class Source(ABC):
    """Images in a stable order with random access; labels and class names where they exist."""

    name: str
    """As given by the user."""
    channels: int = 3
    """3 for color, 1 for gray, or as many as the images have."""
    levels: Levels = ()
    """Range of the values of images of more than 8 bits."""
    left_out: Mapping[str, int] = MappingProxyType({})
    """Number of files beside the images that are not read, by their extension."""
    labels: Tensor | None = None
    """(N,) class numbers, or None."""
    multi_labels: Tensor | None = None
    """(N, classes) if an image may have several classes: 1 present, 0 absent, -1 in doubt. Such a
    source has no `labels`."""
    classes: Sequence[str] = ()
    """Names of the classes."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def image(self, index: int) -> Picture:
        """Return an image, perhaps not decoded yet, or raise UnreadableImage."""

    @abstractmethod
    def where(self, index: int) -> str:
        """Return the location of an image, for messages."""

    def fingerprint(self, times: bool = False) -> str:
        """Return a digest that changes with the images: a resumed run must find the same ones.

        Args:
            times: whether to include the time of the last change of each file. Cached features
                are discarded if it differs; a run is resumed nevertheless.
        """
        digest = hashlib.sha256(str(len(self)).encode())
        for labels in (self.labels, self.multi_labels):
            if labels is not None:
                digest.update(labels.numpy().tobytes())
        for part in self._identity(times):
            digest.update(part)
        return digest.hexdigest()

    def _identity(self, times: bool) -> Iterator[bytes]:
        """Yield what else distinguishes sources of the same length and labels."""
        yield b""


class ArraySource(Source):
    """Small images of one size in memory, as bytes: (N, C, H, W).

    `unreadable` maps the numbers of images that could not be read to the reasons; their pixels are
    black. `places` lists where each image was loaded from, and `origin` is that source, if any.
    """

    def __init__(
        self, name: str, pixels: Tensor, labels: Tensor | None = None, classes: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.pixels = pixels
        self.labels = labels
        self.classes = classes
        self.channels = pixels.shape[1]
        self.unreadable: dict[int, str] = {}
        self.places: Sequence[str] = ()
        self.origin: Source | None = None

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, index: int) -> Picture:
        if index in self.unreadable:
            raise UnreadableImage(self.unreadable[index])
        planes = Planes([Image.fromarray(channel) for channel in self.pixels[index].numpy()])
        return planes.shown() if self.channels in (1, 3) else planes

    def where(self, index: int) -> str:
        return self.places[index] if self.places else f"{self.name}[{index}]"

    def _identity(self, times: bool) -> Iterator[bytes]:
        yield from (chunk.numpy().tobytes() for chunk in self.pixels.split(4096))


class Subset(Source):
    """Some images of another source, in a given order."""

    def __init__(self, source: Source, indices: Integers) -> None:
        self.source = source
        self.indices = indices
        self.name = source.name
        self.channels = source.channels
        self.levels = source.levels
        self.classes = source.classes
        self.labels = _chosen(source.labels, indices)
        self.multi_labels = _chosen(source.multi_labels, indices)

    def __len__(self) -> int:
        return len(self.indices)

    def image(self, index: int) -> Picture:
        return self.source.image(int(self.indices[index]))

    def where(self, index: int) -> str:
        return self.source.where(int(self.indices[index]))

    def _identity(self, times: bool) -> Iterator[bytes]:
        yield self.source.fingerprint(times).encode()
        yield self.indices.tobytes()


def subset(source: Source, indices: Integers) -> Source:
    """Return some images of a source, in the order of `indices`."""
    if isinstance(source, ArraySource):
        chosen = copy(source)
        chosen.pixels = source.pixels[torch.from_numpy(indices)]
        chosen.labels = _chosen(source.labels, indices)
        chosen.multi_labels = _chosen(source.multi_labels, indices)
        chosen.unreadable = {
            new: source.unreadable[old]
            for new, old in enumerate(indices.tolist())
            if old in source.unreadable
        }
        chosen.places = [source.where(index) for index in indices.tolist()]
        chosen.origin = None if source.origin is None else Subset(source.origin, indices)
        return chosen
    return Subset(source, indices)


def _chosen(labels: Tensor | None, indices: Integers) -> Tensor | None:
    return None if labels is None else labels[torch.from_numpy(indices)]


def first_classes(source: Source, count: int) -> Source:
    """Return the images of the first `count` classes in the order of their names; 0 for all.

    Raises:
        InputError: the source has no labels, or fewer classes.
    """
    if count == 0:
        return source
    if count < 0:
        raise InputError(f"--classes: must be at least 0, not {count}")
    if source.labels is None or len(source.classes) < count:
        found = "no labels" if source.labels is None else f"only {len(source.classes)} classes"
        if source.multi_labels is not None:
            found = "several labels per image"
        raise InputError(f"--classes: {source.name} has {found}, so {count} cannot be chosen")
    first = sorted(range(len(source.classes)), key=lambda i: _sort_key(source.classes[i]))[:count]
    number = torch.full((len(source.classes),), -1)
    number[first] = torch.arange(count)
    rows = (number[source.labels] >= 0).nonzero()[:, 0]
    chosen = subset(source, rows.numpy())
    assert chosen.labels is not None
    chosen.labels = number[chosen.labels]
    chosen.classes = [source.classes[i] for i in first]
    return chosen


def _sort_key(name: str) -> tuple[int, int, str]:
    """Sort numbers by value and before other names."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def limited(source: Source, count: int, seed: int) -> Source:
    """Return `count` random images, in their order, drawn with the seed; 0 for all."""
    if count == 0 or count >= len(source):
        return source
    generator = np.random.default_rng(seed_of(seed, "limit"))
    return subset(source, np.sort(generator.permutation(len(source))[:count]).astype(np.int64))


def held_out(source: Source, share: float = 0.2, seed: int = 0) -> tuple[Source, Source]:
    """Split a source that has no test set: (train, test), the same share of every class."""
    generator = np.random.default_rng(seed_of(seed, "held out"))
    labels = np.zeros(len(source)) if source.labels is None else source.labels.numpy()
    test = np.concatenate(
        [
            # The only image of a class stays in the training part, where it can be learned.
            generator.permutation(members)[
                : min(max(1, round(share * len(members))), len(members) - 1)
            ]
            for members in (np.flatnonzero(labels == label) for label in np.unique(labels))
        ]
    )
    train = np.setdiff1d(np.arange(len(source)), test)
    return subset(source, train.astype(np.int64)), subset(source, np.sort(test).astype(np.int64))
