"""Load batches of views in a random order that depends only on (seed, epoch).

Small images are taken from memory and augmented in the batch. Photos are decoded and cropped by
worker processes; the rest of the augmentation is the same batched code. The result of a task does
not depend on the worker, so neither do the batches depend on the number of workers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from wcl.data.photo_views import Crops, PhotoViews, Task
from wcl.data.source import ArraySource, Source
from wcl.data.views import ViewSpec, view_draws
from wcl.data.workers import Workers, worker_count
from wcl.ops.randomness import Draws, Integers, seed_of
from wcl.system.errors import InputError

# Photos per task. Few, so that all workers take part in the first batch of an epoch.
_PHOTOS_PER_TASK = 16
_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Batch:
    """Several views of each image of a step."""

    global_index: Integers
    """Numbers of all images of the step, of all processes, including unreadable ones."""
    local_index: Integers
    """Numbers of the images that this loader reads."""
    index: Integers
    """(N,) numbers of the images that could be read."""
    views: list[Tensor]
    """For each specification (count, N, C, size, size), normalized."""
    skipped: dict[int, str] = field(default_factory=dict)
    """Images of this batch that could not be read, and why."""

    @property
    def rows(self) -> Tensor:
        """`index` as a tensor on the device of the views."""
        return torch.from_numpy(self.index).to(self.views[0].device, non_blocking=True)

    @property
    def positions(self) -> Integers:
        """(N,) positions in `local_index` of the images that could be read."""
        return np.flatnonzero(np.isin(self.local_index, self.index))


class Loader:
    """Iterate over batches of views of a source, by epoch, starting at any step.

    Args:
        source: the images.
        batch_size: images per step; an incomplete last batch of an epoch is dropped.
        seed: of the order and of all augmentations.
        device: of the batches.
        num_workers: processes that decode photos; -1 chooses.
        cache: bytes for photos that views of other images are cut from, for all workers together.
        own: positions in every batch of the images to read here; None for all.
        timeout_minutes: time after which a worker process that does not answer is given up.

    Raises:
        InputError: there are fewer images than one batch holds.
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
            remedy = (
                f"use a --batch_size of at most {len(source)}" if len(source) > 1 else "add some"
            )
            raise InputError(
                f"{source.name}: {len(source)} images are fewer than one batch of {batch_size}; "
                f"{remedy}"
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
        """Return the images of an epoch in their order."""
        generator = np.random.default_rng(seed_of(self.seed, "order", epoch))
        return generator.permutation(len(self.source)).astype(np.int64)

    def epoch(self, epoch: int, specs: Sequence[ViewSpec], start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, starting at step `start`."""
        order = self.order(epoch)
        steps = range(start, self.steps_per_epoch)
        batches = [order[step * self.batch_size : (step + 1) * self.batch_size] for step in steps]
        return self.batches(epoch, batches, specs)

    def batches(
        self, epoch: int, batches: list[Integers], specs: Sequence[ViewSpec]
    ) -> Iterator[Batch]:
        """Yield the views of chosen images, `batch_size` of them at a time."""
        if self._pixels is not None:
            return self._from_memory(epoch, batches, specs)
        return self._from_photos(epoch, batches, specs)

    def _from_memory(
        self, epoch: int, batches: list[Integers], specs: Sequence[ViewSpec]
    ) -> Iterator[Batch]:
        assert isinstance(self.source, ArraySource) and self._pixels is not None
        unreadable = self.source.unreadable
        for global_index in batches:
            local_index = index = global_index[self._own]
            skipped = {i: unreadable[i] for i in index.tolist() if i in unreadable}
            if skipped:
                index = np.array([i for i in index.tolist() if i not in skipped], dtype=np.int64)
            views = []
            for spec, draws in zip(specs, self._draws(epoch, index, specs), strict=True):
                crop_sources = spec.crop_sources_of(index)
                if unreadable:
                    lost = np.isin(crop_sources, list(unreadable))
                    crop_sources = np.where(lost, index[:, None], crop_sources)
                rows = torch.from_numpy(crop_sources.T.ravel()).to(self.device, non_blocking=True)
                made = spec.maker.from_images(self._pixels[rows], draws)
                views.append(made.unflatten(0, (spec.count, len(index))))
            yield Batch(global_index, local_index, index, views, skipped)

    def _from_photos(
        self, epoch: int, batches: list[Integers], specs: Sequence[ViewSpec]
    ) -> Iterator[Batch]:
        local_indexes = [global_index[self._own] for global_index in batches]
        makers = [spec.maker for spec in specs]
        tasks = [
            Task(epoch, makers, part, [spec.crop_sources_of(part) for spec in specs])
            for local_index in local_indexes
            for part in np.split(
                local_index, range(_PHOTOS_PER_TASK, len(local_index), _PHOTOS_PER_TASK)
            )
        ]
        done = self._decoders.done(tasks)
        for global_index, local_index in zip(batches, local_indexes, strict=True):
            pieces = [next(done) for _ in range(self._tasks_per_batch)]
            index = np.concatenate([piece.index for piece in pieces])
            skipped = {k: v for piece in pieces for k, v in piece.skipped.items()}
            views = []
            for number, draws in enumerate(self._draws(epoch, index, specs)):
                crops = torch.cat([piece.crops[number] for piece in pieces], dim=1).flatten(0, 1)
                if self.device.type == "cuda":
                    crops = crops.pin_memory()  # or the copy blocks the host
                crops = crops.to(self.device, non_blocking=True)
                made = makers[number].from_crops(crops, draws)
                views.append(made.unflatten(0, (specs[number].count, len(index))))
            yield Batch(global_index, local_index, index, views, skipped)

    def _draws(self, epoch: int, index: Integers, specs: Sequence[ViewSpec]) -> Iterator[Draws]:
        return view_draws(self.seed, epoch, index, [spec.count for spec in specs])


def views_of(source: Source, index: Integers, specs: Sequence[ViewSpec], seed: int) -> Batch:
    """Return views of chosen images as a run with this seed makes them in its first epoch."""
    loader = Loader(source, len(index), seed, torch.device("cpu"), num_workers=0)
    return next(loader.batches(0, [index], specs))
