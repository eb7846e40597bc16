"""Sharding of a global batch over the processes of a run, and gathering of their embeddings.

The images of a step are numbered by their position in the global batch, whichever process has
them. Losses, weak labels and diagnostics are computed on tensors in that order, so they do not
depend on the number of processes. A batch may pass through the network in micro-batches; every
process has an equal part of each, so the statistics of batch norm depend on the micro-batches
alone.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wcl.distributed.world import World
from wcl.ops.randomness import Integers

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BatchSharding:
    """The assignment of batch positions to processes and micro-batches.

    Args:
        batch_size: images in a step, over all processes.
        world: the processes.
        micro_batch_size: images that pass through the network at a time, over all processes; 0
            for all.
    """

    batch_size: int
    world: World = field(default_factory=World)
    micro_batch_size: int = 0

    @property
    def local_size(self) -> int:
        """Images of a step on each process."""
        return self.batch_size // self.world.size

    @property
    def local_micro_size(self) -> int:
        """Images of a micro-batch on each process."""
        return (self.micro_batch_size or self.batch_size) // self.world.size

    def positions(self, rank: int) -> Integers:
        """Return (local_size,) the positions in the global batch of a process's images."""
        every = np.arange(self.batch_size).reshape(-1, self.world.size, self.local_micro_size)
        return every[:, rank].ravel()

    def shard(
        self, batch_index: Integers, readable: Integers, device: torch.device
    ) -> "BatchShard":
        """Return the local shard of one step. All processes must call this.

        Args:
            batch_index: (batch_size,) dataset indices of all images of the step.
            readable: (n,) the local images that could be read, as rows of `positions`.
            device: device of the embeddings.
        """
        mask = torch.zeros(self.local_size, dtype=torch.uint8)
        mask[torch.from_numpy(readable)] = 1
        masks = self.world.all_gather(mask)  # on the CPU, whatever the device
        return BatchShard(self, batch_index, readable, masks.numpy() > 0, device)


class BatchShard:
    """The images of one step on this process, and where they are in the global batch.

    Args:
        sharding: the assignment of positions to processes.
        batch_index: (batch_size,) dataset indices of all images of the step.
        readable: (n,) the local images that could be read, as rows of `positions`.
        masks: (batch_size,) whether each image could be read, rank by rank.
        device: device of the embeddings.
    """

    def __init__(
        self,
        sharding: BatchSharding,
        batch_index: Integers,
        readable: Integers,
        masks: Mask,
        device: torch.device,
    ) -> None:
        self._world = sharding.world
        self._padded = sharding.local_size
        self._readable = torch.from_numpy(readable).to(device, non_blocking=True)
        # Row i of a gathered tensor is the image at position[i] of the global batch.
        position = np.concatenate([sharding.positions(r) for r in range(self._world.size)])
        order = np.argsort(position)
        order = order[masks[order]]
        self.index = batch_index[position[order]]
        """(N,) dataset indices of all readable images of the step, in batch order."""
        self.index_by_rank = [
            np.asarray(batch_index[mine[mask]])
            for mine, mask in zip(
                position.reshape(self._world.size, -1),
                masks.reshape(self._world.size, -1),
                strict=True,
            )
        ]
        """The dataset indices of each process's images, in its own order."""
        micro = readable // sharding.local_micro_size
        everywhere = position[order] // (sharding.micro_batch_size or sharding.batch_size)
        self.micro_batches = [
            np.flatnonzero(np.isin(micro, group)) for group in _merge_single(everywhere)
        ]
        """For each micro-batch, the rows of the local images in it."""
        self.own: Tensor | None = None
        """(n,) positions of the local images among the N; None if they are all."""
        self._order: Tensor | None = None
        if self._world.size > 1:
            row_of = np.empty(len(position), dtype=np.int64)
            row_of[order] = np.arange(len(order))
            own = row_of[self._world.rank * sharding.local_size + readable]
            self.own = torch.from_numpy(own).to(device, non_blocking=True)
            if not np.array_equal(order, np.arange(len(position))):
                self._order = torch.from_numpy(order).to(device, non_blocking=True)

    @property
    def image_index(self) -> Tensor:
        """(N,) `index` on the device."""
        return torch.from_numpy(self.index).to(self._readable.device, non_blocking=True)

    def __len__(self) -> int:
        """Return N, the number of readable images of the step over all processes."""
        return len(self.index)

    def local(self, rows: Tensor) -> Tensor:
        """Select the local images: (N, …) of all → (n, …)."""
        return rows if self.own is None else rows[self.own]

    def gather(self, rows: Tensor) -> Tensor:
        """Gather (n, …) local rows → (N, …) of all processes, in batch order."""
        if self._world.size == 1:
            return rows
        if len(rows) < self._padded:
            padded = rows.new_zeros(self._padded, *rows.shape[1:])
            rows = padded.index_copy(0, self._readable, rows)
        gathered = self._world.all_gather(rows)
        return gathered if self._order is None else gathered[self._order]

    def gather_embeddings(self, *columns: Tensor) -> tuple[Tensor, ...]:
        """Gather several (n, D) at once, in one collective."""
        if self._world.size == 1:
            return columns
        together = self.gather(torch.cat(columns, dim=1))
        return tuple(torch.split(together, [column.shape[1] for column in columns], dim=1))


def _merge_single(micro_batches: Integers) -> list[Integers]:
    """Merge single-image micro-batches into others: batch norm needs at least two rows.

    >>> [group.tolist() for group in _merge_single(np.array([0, 0, 1, 2, 2, 3]))]
    [[0], [1, 2, 3]]
    """
    groups: list[Integers] = []
    single = False
    for number, images in zip(*np.unique(micro_batches, return_counts=True), strict=True):
        if single:
            groups[-1] = np.append(groups[-1], number)
            single = False
        else:
            groups.append(np.array([number]))
            single = images < 2
    if single and len(groups) > 1:
        last = groups.pop()
        groups[-1] = np.concatenate([groups[-1], last])
    return groups
