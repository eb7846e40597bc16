"""Features of random crops and flips, which classifiers are trained on, epoch by epoch."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import Source
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.evaluation.features import kept, none_can_be_read
from wcl.models.encoder import Encoder
from wcl.ops.randomness import seed_of
from wcl.system.errors import InputError
from wcl.system.machine import available_memory
from wcl.system.progress import say, track

Batches = Callable[[int], Iterator[tuple[Tensor, Tensor]]]
"""(n, features) and (n,) labels, batch by batch, of the epoch of a number."""

KEPT = 4
"""Epochs of crops that are kept. Accuracy of CIFAR-10's three first classes after 80 epochs, by
epochs kept: 0.867 (1), 0.871 (2), 0.873 (4), 0.876 (80); of the plain images alone 0.888."""


def crop_and_flip(encoder: Encoder) -> ViewMaker:
    """The augmentation that classifiers are trained with: random resized crops and flips.

    They are those of the pretraining: of others the encoder has learned nothing. (Digits that are
    never cut nor flipped in pretraining, 99% right without either, are 92% right if they are cut
    as ImageNet's images and flipped.)
    """
    described = encoder.description
    config = AugmentConfig(
        scale=described.scale,
        flip=described.flip,
        jitter=0,
        grayscale=0,
        blur=0,
        mean=described.mean,
        std=described.std,
    )
    return ViewMaker(config, described.image_size, described.channels)


class Epoch(NamedTuple):
    """What an epoch trained on."""

    inputs: Tensor
    """(n, features), in the order of the steps."""
    labels: Tensor
    sizes: list[int]
    """How many of them each step had."""


def repeated(first: Sequence[Epoch], seed: int) -> Batches:
    """Some epochs as they are, and then each of them again and again in other orders."""

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, labels, sizes = first[epoch % len(first)]
        if epoch < len(first):
            yield from zip(inputs.split(sizes), labels.split(sizes), strict=True)
            return
        generator = torch.Generator().manual_seed(seed_of(seed, "repeated", epoch))
        order = torch.randperm(len(labels), generator=generator).to(inputs.device)
        for rows in order.tensor_split(len(sizes)):
            yield inputs[rows], labels[rows]

    return batches


class CropFeatures:
    """Features of one random crop of every image in each epoch, in a random order.

    Args:
        encoder: frozen; its device is where everything is.
        source: labeled images.
        batch: images of a step; those that do not fill one wait for another epoch.
        seed: of the order and the crops.
        workers: processes that decode photos; -1 chooses.
    """

    def __init__(
        self, encoder: Encoder, source: Source, batch_size: int, seed: int, num_workers: int = -1
    ) -> None:
        assert source.labels is not None
        self._encoder = encoder
        self._source = source
        self._maker = crop_and_flip(encoder)
        self._loader = Loader(source, batch_size, seed, encoder.device, num_workers)
        self._labels = source.labels.to(encoder.device)
        self._seen = torch.zeros(len(source), dtype=torch.bool, device=encoder.device)

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self._loader.steps_per_epoch

    @property
    def images(self) -> int:
        """How many different images have been given out."""
        return int(self._seen.sum())

    def fresh(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Through the encoder in every epoch, as in the paper."""
        read = 0
        for inputs, rows in self._batches(epoch):
            read += len(rows)
            yield self._given(inputs, rows)
        if epoch == 0:
            self._say_what_is_lost(read)

    def in_turn(self, epochs: int) -> Batches:
        """Through the encoder in the first KEPT epochs, which the others repeat in other orders.

        They are kept with the encoder's other features.
        """
        count = min(KEPT, epochs)
        self._check_memory(count)
        first = [self._epoch(epoch, count) for epoch in range(count)]
        self._say_what_is_lost(min(len(epoch.labels) for epoch in first))
        return repeated(first, self._loader.seed)

    def _given(self, inputs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        self._seen[rows] = True
        return inputs, self._labels[rows]

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and the images' numbers, of batches of which anything can be read."""
        nothing = True
        self._encoder.eval()
        for part in self._loader.epoch(epoch, [ViewSpec(self._maker, 1)]):
            if len(part.index):
                nothing = False
                with torch.no_grad():
                    inputs = self._encoder.backbone(part.views[0]).float()
                yield inputs, part.rows
        if nothing:
            raise InputError(f"{self._source.name}: {none_can_be_read(len(self._source))}")

    def _epoch(self, epoch: int, count: int) -> Epoch:
        """A whole one of so many epochs, on the encoder's device."""
        config = self._maker.config
        how = f"crops 1 {config.scale} {config.flip} {self._loader.seed} {self._loader.batch_size}"
        order = self._loader.order(epoch)
        wanted = torch.from_numpy(order[: self.steps * self._loader.batch_size])
        found = kept(
            self._encoder,
            self._source,
            f"{how} {epoch}",
            wanted,
            lambda: self._compute(epoch, count),
        )
        # The order of the epoch tells to which step each image that could be read belonged.
        steps = np.argsort(order)[found[1].numpy()] // self._loader.batch_size
        sizes = np.unique(steps, return_counts=True)[1].tolist()
        return Epoch(*self._given(*(part.to(self._encoder.device) for part in found)), sizes)

    def _compute(self, epoch: int, count: int) -> tuple[Tensor, Tensor]:
        doing = f"computing features of crops, {epoch + 1} of {count}"
        parts = [
            (inputs.cpu(), rows.cpu())
            for inputs, rows in track(self._batches(epoch), doing, self.steps)
        ]
        inputs, rows = (torch.cat(some) for some in zip(*parts, strict=True))
        return inputs, rows

    def _say_what_is_lost(self, read: int) -> None:
        """Tell how many images of an epoch could not be read."""
        images = self.steps * self._loader.batch_size
        if lost := images - read:
            say(f"{self._source.name}: {lost} of {images} images cannot be read; left out")

    def _check_memory(self, count: int) -> None:
        needed = count * len(self._source) * self._encoder.feature_dim * 4
        if needed > available_memory():
            raise InputError(
                f"--mode fast: the features of {count} crops of {len(self._source):,} images take "
                f"{needed / 1e9:.1f} GB, more than is free; --mode paper keeps none"
            )
