"""The loader of views: batches in a random order that depends on (seed, epoch) alone.

Small images are taken from memory and augmented in the batch. Photos are decoded and cropped by
worker processes; the rest of the augmentation is the same batched code. What a worker makes
depends on the task it is sent and on nothing else, so their number changes nothing.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from wcl.augment import ViewMaker
from wcl.data.decode import UnreadableImage, cut_views
from wcl.data.source import ArraySource, Source
from wcl.errors import InputError, RunError
from wcl.randomness import Draws, Integers, seed_of

# Photos per task: small, so that all workers share the first batch of an epoch.
_PHOTOS_PER_TASK = 16
_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Batch:
    """N images of a step, each in several views."""

    index: Integers
    """(N,) numbers of the images in the source."""
    views: Tensor
    """(views·N, C, size, size) normalised, all images' first view, then their second, …"""
    skipped: dict[int, str] = field(default_factory=dict)
    """Images that belong to this batch but could not be read, and why."""

    @property
    def rows(self) -> Tensor:
        """The numbers again, on the device of the views."""
        return torch.from_numpy(self.index).to(self.views.device, non_blocking=True)


@dataclass(frozen=True)
class _Task:
    epoch: int
    maker: ViewMaker
    index: Integers


@dataclass(frozen=True)
class _Crops:
    index: Integers
    crops: Tensor
    """(views, n, C, size, size) bytes."""
    skipped: dict[int, str]


class Loader:
    """Batches of views of a source, epoch by epoch, from any step on.

    Args:
        source: the images.
        batch: images per step; the last images of an epoch's order that do not fill one wait for
            another epoch.
        seed: of the order and of all augmentations.
        device: where the batches are wanted.
        workers: processes that decode photos; -1 chooses.
        views: views per image.
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        seed: int,
        device: torch.device,
        workers: int = -1,
        views: int = 2,
    ) -> None:
        if len(source) < batch:
            raise InputError(
                f"{source.name}: {len(source)} images are fewer than one batch of {batch}; "
                f"use --batch {2 ** int(np.log2(max(2, len(source))))} or less"
            )
        self.source = source
        self.batch = batch
        self.seed = seed
        self.device = device
        self.views = views
        self.steps_per_epoch = len(source) // batch
        self.workers = worker_count(workers)
        self._pixels = source.pixels.to(device) if isinstance(source, ArraySource) else None
        self._photos: DataLoader[_Crops] | None = None
        self._tasks: list[_Task] = []

    def order(self, epoch: int) -> Integers:
        """The images of an epoch in their order."""
        generator = np.random.default_rng(seed_of(self.seed, "order", epoch))
        return generator.permutation(len(self.source)).astype(np.int64)

    def epoch(self, epoch: int, maker: ViewMaker, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from step `start` on."""
        order = self.order(epoch)
        steps = range(start, self.steps_per_epoch)
        batches = [order[step * self.batch : (step + 1) * self.batch] for step in steps]
        if self._pixels is not None:
            return self._from_memory(epoch, batches, maker)
        return self._from_photos(epoch, batches, maker)

    def _from_memory(
        self, epoch: int, batches: list[Integers], maker: ViewMaker
    ) -> Iterator[Batch]:
        assert isinstance(self.source, ArraySource) and self._pixels is not None
        unreadable = self.source.unreadable
        for index in batches:
            skipped = {i: unreadable[i] for i in index.tolist() if i in unreadable}
            if skipped:
                index = np.array([i for i in index.tolist() if i not in skipped], dtype=np.int64)
            rows = torch.from_numpy(index).to(self.device, non_blocking=True)
            images = self._pixels[rows].repeat(self.views, 1, 1, 1)
            yield Batch(index, maker.from_images(images, self._draws(epoch, index)), skipped)

    def _from_photos(
        self, epoch: int, batches: list[Integers], maker: ViewMaker
    ) -> Iterator[Batch]:
        tasks_per_batch = -(-self.batch // _PHOTOS_PER_TASK)
        self._tasks[:] = [
            _Task(epoch, maker, index[start : start + _PHOTOS_PER_TASK])
            for index in batches
            for start in range(0, len(index), _PHOTOS_PER_TASK)
        ]
        if self._photos is None:
            self._photos = self._start_workers(tasks_per_batch)
        done = iter(self._photos)
        for _ in batches:
            try:
                pieces = [next(done) for _ in range(tasks_per_batch)]
            except RuntimeError as error:
                raise RunError(f"a process that decodes photos died ({error})") from error
            index = np.concatenate([piece.index for piece in pieces])
            crops = torch.cat([piece.crops for piece in pieces], dim=1).flatten(0, 1)
            skipped = {k: v for piece in pieces for k, v in piece.skipped.items()}
            if self.device.type == "cuda":
                crops = crops.pin_memory()  # or the copy would make the host wait
            crops = crops.to(self.device, non_blocking=True)
            yield Batch(index, maker.from_crops(crops, self._draws(epoch, index)), skipped)

    def _start_workers(self, tasks_per_batch: int) -> DataLoader[_Crops]:
        ahead = -(-_BATCHES_AHEAD * tasks_per_batch // max(1, self.workers))
        return DataLoader(
            _PhotoCrops(self.source, self.seed, self.views),
            batch_size=None,
            sampler=self._tasks,
            num_workers=self.workers,
            prefetch_factor=ahead if self.workers else None,
            persistent_workers=self.workers > 0,
            worker_init_fn=_leave_signals_to_the_parent,
            generator=torch.Generator(),  # or it would draw from the one that dropout uses
        )

    def _draws(self, epoch: int, index: Integers) -> Draws:
        view = np.repeat(np.arange(self.views, dtype=np.int64), len(index))
        return Draws(self.seed, epoch, np.tile(index, self.views), view)


class _PhotoCrops(Dataset[_Crops]):
    """In a worker: from a task to the crops of its images."""

    def __init__(self, source: Source, seed: int, views: int) -> None:
        self.source = source
        self.seed = seed
        self.views = views

    def __getitem__(self, task: _Task) -> _Crops:
        kept: list[int] = []
        crops: list[Tensor] = []
        skipped: dict[int, str] = {}
        for index in task.index.tolist():
            try:
                crops.append(self._crops(task, index))
                kept.append(index)
            except UnreadableImage as error:
                skipped[index] = f"{self.source.where(index)}: {error}"
        size, channels = task.maker.size, task.maker.channels
        stacked = (
            torch.stack(crops, dim=1)
            if crops
            else torch.empty(self.views, 0, channels, size, size, dtype=torch.uint8)
        )
        return _Crops(np.array(kept, dtype=np.int64), stacked, skipped)

    def _crops(self, task: _Task, index: int) -> Tensor:
        """(views, C, size, size) bytes."""
        view = np.arange(self.views, dtype=np.int64)
        draws = Draws(self.seed, task.epoch, np.full(self.views, index, dtype=np.int64), view)
        return photo_crops(self.source.image(index), task.maker, draws)


def photo_crops(image: Image.Image, maker: ViewMaker, draws: Draws) -> Tensor:
    """One crop of a photo for each draw: (n, C, size, size) bytes."""

    def boxes(height: int, width: int) -> Integers:
        sizes = np.array([height, width], dtype=np.int64)[:, None].repeat(len(draws), axis=1)
        return maker.boxes(sizes[0], sizes[1], draws)

    return torch.stack(cut_views(image, boxes, [maker.size] * len(draws), maker.channels))


def _leave_signals_to_the_parent(worker: int) -> None:
    """Ctrl-C and SIGTERM reach the whole group of processes; the parent alone decides to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def worker_count(wanted: int) -> int:
    """That many processes, or with -1 one for each core but one, at most 8."""
    if wanted >= 0:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(8, (cores or 2) - 1))
