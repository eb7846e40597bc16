"""How the images of a step are shared out over processes and pieces, and put together again.

The global batch is the same on any number of processes. It passes through the network in pieces
(one, unless it is larger than memory), and every process has an equal part of each piece, so that
what a batch norm sees depends on the pieces alone.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from wcl.distributed.world import World
from wcl.ops.randomness import Integers


@dataclass(frozen=True)
class BatchSharding:
    """Who has which images of a step.

    Args:
        batch: images in a step, over all processes.
        world: the processes.
        piece: images that pass through the network at a time, over all processes; 0 for all.
    """

    batch_size: int
    world: World = field(default_factory=World)
    piece: int = 0

    @property
    def own_count(self) -> int:
        """Images of a step that one process has."""
        return self.batch_size // self.world.size

    @property
    def own_piece(self) -> int:
        """Images of a piece that one process has."""
        return (self.piece or self.batch_size) // self.world.size

    def positions(self, rank: int) -> Integers:
        """(own_count,) the places in the global batch of the images that a process has."""
        every = np.arange(self.batch_size).reshape(-1, self.world.size, self.own_piece)
        return every[:, rank].ravel()


class BatchShard:
    """The images of one step that this process has, among those of all.

    Args:
        sharing: who has which.
        everyone: (batch,) numbers of all images of the step.
        place: (n,) which of this process's images could be read: places among its `positions`.
        device: of the embeddings.
    """

    def __init__(
        self, sharding: BatchSharding, everyone: Integers, place: Integers, device: torch.device
    ) -> None:
        self._world = sharding.world
        self._padded = sharding.own_count
        self._place = torch.from_numpy(place).to(device, non_blocking=True)
        readable = torch.zeros(sharding.own_count, dtype=torch.uint8)
        readable[torch.from_numpy(place)] = 1
        readable = self._world.gather(readable)  # on the host, whatever the device
        # Row i of what is gathered is the image at position[i] of the global batch.
        position = np.concatenate([sharding.positions(r) for r in range(self._world.size)])
        order = np.argsort(position)
        order = order[readable.numpy()[order] > 0]
        self.index = everyone[position[order]]
        """(N,) numbers of all images of the step that could be read, in its order."""
        self.by_process = [
            np.asarray(everyone[mine[seen > 0]])
            for mine, seen in zip(
                position.reshape(self._world.size, -1),
                readable.numpy().reshape(self._world.size, -1),
                strict=True,
            )
        ]
        """For every process the numbers of the images that it has, in its order."""
        in_piece = place // sharding.own_piece
        all_gather_object = position[order] // (sharding.piece or sharding.batch_size)
        self.pieces = [
            np.flatnonzero(np.isin(in_piece, group)) for group in _of_two(all_gather_object)
        ]
        """For each piece that anybody has, rows of this process's images in it."""
        self.own: Tensor | None = None
        """(n,) the places of this process's images among these; None if they are all."""
        self._order: Tensor | None = None
        if self._world.size > 1:
            found = np.empty(len(position), dtype=np.int64)
            found[order] = np.arange(len(order))
            own = found[self._world.rank * sharding.own_count + place]
            self.own = torch.from_numpy(own).to(device, non_blocking=True)
            if not np.array_equal(order, np.arange(len(position))):
                self._order = torch.from_numpy(order).to(device, non_blocking=True)

    @property
    def rows(self) -> Tensor:
        """The numbers of all again, on the device."""
        return torch.from_numpy(self.index).to(self._place.device, non_blocking=True)

    def __len__(self) -> int:
        """Images of the step that could be read, over all processes."""
        return len(self.index)

    def gather(self, rows: Tensor) -> Tensor:
        """(n, …) of this process's images → (N, …) of all, in the order of the step."""
        if self._world.size == 1:
            return rows
        if len(rows) < self._padded:
            whole = rows.new_zeros(self._padded, *rows.shape[1:])
            rows = whole.index_copy(0, self._place, rows)
        gathered = self._world.gather(rows)
        return gathered if self._order is None else gathered[self._order]

    def gather_all(self, *columns: Tensor) -> tuple[Tensor, ...]:
        """The same for several (n, D) at once, in one message."""
        if self._world.size == 1:
            return columns
        together = self.gather(torch.cat(columns, dim=1))
        return tuple(torch.split(together, [column.shape[1] for column in columns], dim=1))


def _of_two(pieces: Integers) -> list[Integers]:
    """The pieces that images are in, those together that have one image alone.

    A batch norm has no statistics of one image, whose crops may be a single row.

    >>> [group.tolist() for group in _of_two(np.array([0, 0, 1, 2, 2, 3]))]
    [[0], [1, 2, 3]]
    """
    groups: list[Integers] = []
    lone = False
    for piece, images in zip(*np.unique(pieces, return_counts=True), strict=True):
        if lone:
            groups[-1] = np.append(groups[-1], piece)
            lone = False
        else:
            groups.append(np.array([piece]))
            lone = images < 2
    if lone and len(groups) > 1:
        last = groups.pop()
        groups[-1] = np.concatenate([groups[-1], last])
    return groups
