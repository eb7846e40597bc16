"""Features split among the processes of a run, and exact search among all of them."""

import torch
from torch import Tensor

from wcl.distributed.world import World
from wcl.neighbors.exact import key_blocks, nearest_in_blocks
from wcl.system.progress import track


class ShardedFeatures:
    """(N, D) features; rank 0 holds the first rows, rank 1 the next, and so on.

    Methods marked as collective must be called by all processes with the same arguments.

    Args:
        features: the local rows, on the host.
        world: the processes; None for a single one.
        counts: the number of rows of each process; None for a single one.
    """

    def __init__(
        self, features: Tensor, world: World | None = None, counts: list[int] | None = None
    ) -> None:
        self.features = features
        self.world = world or World()
        self.counts = counts or [len(features)]
        """Number of rows of each process."""
        self._ends = torch.tensor(self.counts).cumsum(0)
        self.offset = sum(self.counts[: self.world.rank])
        """Number of the first local row."""

    def __len__(self) -> int:
        return int(self._ends[-1])

    def owners(self, rows: Tensor) -> Tensor:
        """Return the rank that holds each row."""
        return torch.searchsorted(self._ends, rows, right=True)

    def local(self, rows: Tensor) -> Tensor:
        """Return the rows that this process holds, in their order."""
        return rows[self.owners(rows) == self.world.rank]

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return the features of local rows."""
        return self.features[rows - self.offset]

    def fetch(self, rows: Tensor, device: torch.device | None = None) -> Tensor:
        """Return the features of any rows; collective."""
        values = self[self.local(rows)]
        return self.merge(rows, values if device is None else values.to(device))

    def merge(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return (n, …) values of rows, given the values of the local ones; collective."""
        if self.world.size == 1:
            return values
        merged = values.new_empty(len(rows), *values.shape[1:])
        owners = self.owners(rows)
        for rank in range(self.world.size):
            positions = (owners == rank).nonzero()[:, 0].to(values.device)
            if len(positions):
                is_local = rank == self.world.rank
                shape = (len(positions), *values.shape[1:])
                part = values.contiguous() if is_local else values.new_empty(shape)
                merged[positions] = self.world.broadcast(part, rank)
        return merged

    def nearest(
        self, rows: Tensor, k: int, candidates: Tensor, device: torch.device | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the k most similar other rows of each of these rows; collective.

        Blocks of candidates are broadcast, and every process compares them with its own queries.
        The blocks are the same for any number of processes, and so are the results, as long as the
        device rounds a product in the same way whatever rows are beside it (a CPU does). Otherwise
        neighbors whose similarities are within rounding may swap places.

        Args:
            rows: numbers of the queries.
            k: number of neighbors, less than the number of candidates.
            candidates: the rows to search, in ascending order.
            device: where to compute; None for the host.

        Returns:
            (n, k) cosines and (n, k) row numbers, equal cosines by ascending number; the same on
            every process.
        """
        local = self.local(rows)
        parts = key_blocks(candidates)
        tracked = track(parts, "finding neighbors") if self.world.is_rank_zero else parts
        blocks = ((numbers, self.fetch(numbers, device)) for numbers in tracked)
        found = nearest_in_blocks(self.features, blocks, k, local, local - self.offset, device)
        cosine, neighbors = (self.merge(rows, column) for column in found)
        return cosine, neighbors
