"""The loader of views: batches in a random order that depends on (seed, epoch) alone.

Small images are taken from memory and augmented in the batch. Photos are decoded and cropped by
worker processes; the rest of the augmentation is the same batched code. What a worker makes
depends on the task it is sent and on nothing else, so their number changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from wcl.augment import ViewMaker
from wcl.data.photo_views import Crops, PhotoViews, Task
from wcl.data.source import ArraySource, Source
from wcl.data.workers import Workers, worker_count
from wcl.ops.randomness import Draws, Integers, seed_of
from wcl.system.errors import InputError

# Photos per task: small, so that all workers share the first batch of an epoch.
_PHOTOS_PER_TASK = 16
_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Views:
    """Views of one kind: so many of each image, made in one way."""

    maker: ViewMaker
    count: int
    crop_sources: Integers | None = None
    """(images of the source, count): the image that each view is cut from; None for itself."""

    def crop_sources_of(self, index: Integers) -> Integers:
        """(n, count) the images that the views of these images are cut from."""
        own = np.repeat(index[:, None], self.count, axis=1)
        return own if self.crop_sources is None else self.crop_sources[index]


@dataclass(frozen=True)
class Batch:
    """Images of a step, each in several views."""

    everyone: Integers
    """Numbers of all images of the step in the source, read or not, on this process or not."""
    wanted: Integers
    """Those of them that this loader is to read."""
    index: Integers
    """(N,) those that could be read."""
    views: list[Tensor]
    """For each kind (count·N, C, size, size) normalized, all images' first, then their second, …"""
    skipped: dict[int, str] = field(default_factory=dict)
    """Images that belong to this batch but could not be read, and why."""

    @property
    def rows(self) -> Tensor:
        """The numbers again, on the device of the views."""
        return torch.from_numpy(self.index).to(self.views[0].device, non_blocking=True)

    @property
    def place(self) -> Integers:
        """(N,) where the images that could be read are among those that were wanted."""
        return np.flatnonzero(np.isin(self.wanted, self.index))


class Loader:
    """Batches of views of a source, epoch by epoch, from any step on.

    Args:
        source: the images.
        batch: images per step; the last images of an epoch's order that do not fill one wait for
            another epoch.
        seed: of the order and of all augmentations.
        device: where the batches are wanted.
        workers: processes that decode photos; -1 chooses.
        cache: bytes that they may use together to keep photos that views of others are cut from.
        own: the places in every batch of the images that are wanted here; None for all.
        wait: minutes after which a worker process that does not answer is given up.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        seed: int,
        device: torch.device,
        num_workers: int = -1,
        cache: int = 2**30,
        own: Integers | None = None,
        timeout_minutes: float = 30,
    ) -> None:
        if len(source) < batch_size:
            raise InputError(
                f"{source.name}: {len(source)} images are fewer than one batch of {batch_size}; "
                f"use --batch_size {2 ** int(np.log2(max(2, len(source))))} or less"
            )
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self.steps_per_epoch = len(source) // batch_size
        self._own = np.arange(batch_size) if own is None else own
        self._tasks_per_batch = -(-len(self._own) // _PHOTOS_PER_TASK)
        self._pixels = source.pixels.to(device) if isinstance(source, ArraySource) else None
        self.num_workers = worker_count(num_workers)
        each = max(1, self.num_workers)
        self._decoders: Workers[Task, Crops] = Workers(
            source.name,
            PhotoViews(source, seed, cache // each),
            self.num_workers,
            ahead=-(-_BATCHES_AHEAD * self._tasks_per_batch // each),
            timeout_minutes=timeout_minutes,
        )

    def order(self, epoch: int) -> Integers:
        """The images of an epoch in their order."""
        generator = np.random.default_rng(seed_of(self.seed, "order", epoch))
        return generator.permutation(len(self.source)).astype(np.int64)

    def epoch(self, epoch: int, kinds: Sequence[Views], start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from step `start` on."""
        order = self.order(epoch)
        steps = range(start, self.steps_per_epoch)
        batches = [order[step * self.batch_size : (step + 1) * self.batch_size] for step in steps]
        return self.batches(epoch, batches, kinds)

    def batches(
        self, epoch: int, batches: list[Integers], kinds: Sequence[Views]
    ) -> Iterator[Batch]:
        """Yield the views of chosen images, `batch_size` of them at a time."""
        if self._pixels is not None:
            return self._from_memory(epoch, batches, kinds)
        return self._from_photos(epoch, batches, kinds)

    def _from_memory(
        self, epoch: int, batches: list[Integers], kinds: Sequence[Views]
    ) -> Iterator[Batch]:
        assert isinstance(self.source, ArraySource) and self._pixels is not None
        unreadable = self.source.unreadable
        for everyone in batches:
            wanted = index = everyone[self._own]
            skipped = {i: unreadable[i] for i in index.tolist() if i in unreadable}
            if skipped:
                index = np.array([i for i in index.tolist() if i not in skipped], dtype=np.int64)
            views = []
            for kind, draws in zip(kinds, self._draws(epoch, index, kinds), strict=True):
                crop_sources = kind.crop_sources_of(index)
                if unreadable:
                    lost = np.isin(crop_sources, list(unreadable))
                    crop_sources = np.where(lost, index[:, None], crop_sources)
                rows = torch.from_numpy(crop_sources.T.ravel()).to(self.device, non_blocking=True)
                views.append(kind.maker.from_images(self._pixels[rows], draws))
            yield Batch(everyone, wanted, index, views, skipped)

    def _from_photos(
        self, epoch: int, batches: list[Integers], kinds: Sequence[Views]
    ) -> Iterator[Batch]:
        shares = [everyone[self._own] for everyone in batches]
        makers = [kind.maker for kind in kinds]
        tasks = [
            Task(epoch, makers, part, [kind.crop_sources_of(part) for kind in kinds])
            for wanted in shares
            for part in np.split(wanted, range(_PHOTOS_PER_TASK, len(wanted), _PHOTOS_PER_TASK))
        ]
        done = self._decoders.done(tasks)
        for everyone, wanted in zip(batches, shares, strict=True):
            pieces = [next(done) for _ in range(self._tasks_per_batch)]
            index = np.concatenate([piece.index for piece in pieces])
            skipped = {k: v for piece in pieces for k, v in piece.skipped.items()}
            views = []
            for number, draws in enumerate(self._draws(epoch, index, kinds)):
                crops = torch.cat([piece.crops[number] for piece in pieces], dim=1).flatten(0, 1)
                if self.device.type == "cuda":
                    crops = crops.pin_memory()  # or the copy would make the host wait
                crops = crops.to(self.device, non_blocking=True)
                views.append(makers[number].from_crops(crops, draws))
            yield Batch(everyone, wanted, index, views, skipped)

    def _draws(self, epoch: int, index: Integers, kinds: Sequence[Views]) -> Iterator[Draws]:
        """The random numbers of each kind; an image's views are numbered through all kinds."""
        first = 0
        for kind in kinds:
            view = np.repeat(np.arange(first, first + kind.count, dtype=np.int64), len(index))
            yield Draws(self.seed, epoch, np.tile(index, kind.count), view)
            first += kind.count


def views_of(source: Source, index: Integers, kinds: Sequence[Views], seed: int) -> Batch:
    """Return views of chosen images as a run with this seed makes them in its first epoch."""
    loader = Loader(source, len(index), seed, torch.device("cpu"), num_workers=0)
    return next(loader.batches(0, [index], kinds))
