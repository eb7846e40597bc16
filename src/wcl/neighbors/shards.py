"""Features of which every process keeps a part, and the exact search among all of them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from wcl.distributed.world import World
from wcl.neighbors.exact import in_blocks, nearest_in_blocks
from wcl.system.progress import track


class Shards:
    """(N, D) features; the first rows are kept by process 0, the next by process 1 and so on.

    All processes take part in every call that says so, with the same arguments.

    Args:
        features: the rows that this process keeps, on the host.
        world: the processes; None if this one is alone.
        counts: how many rows each process keeps; None if this one is alone.
    """

    def __init__(
        self, features: Tensor, world: World | None = None, counts: list[int] | None = None
    ) -> None:
        self.features = features
        self.world = world or World()
        self.counts = counts or [len(features)]
        """Rows that each process keeps."""
        self._ends = torch.tensor(self.counts).cumsum(0)
        self.first = sum(self.counts[: self.world.rank])
        """Number of the first row that this process keeps."""

    def __len__(self) -> int:
        return int(self._ends[-1])

    def keepers(self, rows: Tensor) -> Tensor:
        """The processes that keep these rows."""
        return torch.searchsorted(self._ends, rows, right=True)

    def own(self, rows: Tensor) -> Tensor:
        """Those of the rows that this process keeps."""
        return rows[self.keepers(rows) == self.world.rank]

    def __getitem__(self, rows: Tensor) -> Tensor:
        """The features of rows that this process keeps."""
        return self.features[rows - self.first]

    def fetch(self, rows: Tensor, device: torch.device | None = None) -> Tensor:
        """The features of any rows; all processes take part."""
        own = self[self.own(rows)]
        return self.together(rows, own if device is None else own.to(device))

    def together(self, rows: Tensor, own: Tensor) -> Tensor:
        """(n, …) values for rows, of which each has those of its own; all processes take part."""
        if self.world.size == 1:
            return own
        whole = own.new_empty(len(rows), *own.shape[1:])
        keepers = self.keepers(rows)
        for process in range(self.world.size):
            kept = (keepers == process).nonzero()[:, 0].to(own.device)
            if len(kept):
                here = process == self.world.rank
                part = own.contiguous() if here else own.new_empty(len(kept), *own.shape[1:])
                whole[kept] = self.world.broadcast(part, process)
        return whole

    def nearest(
        self,
        rows: Tensor,
        k: int,
        candidates: Tensor,
        device: torch.device | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The k most similar others of each of these rows; all processes take part.

        Blocks of candidates go round, and every process compares them with those of the rows that
        it keeps. The blocks are the same with any number of processes, and so are the answers:
        only if the device rounds a product differently when other rows are asked about beside it
        (a CPU does not), neighbors whose similarities are within rounding may change places.

        Args:
            rows: numbers of rows.
            k: neighbors wanted, fewer than there are candidates.
            candidates: the rows that may be found, in rising order.
            device: where to compute; None for the host.

        Returns:
            (n, k) cosines and (n, k) numbers, of equal ones the lower first; the same everywhere.
        """
        own = self.own(rows)
        parts: Iterable[Tensor] = in_blocks(candidates)
        if self.world.is_rank_zero:
            parts = track(parts, "finding neighbors")
        blocks = ((numbers, self.fetch(numbers, device)) for numbers in parts)
        found = nearest_in_blocks(self.features, blocks, k, own, own - self.first, device)
        cosine, neighbors = (self.together(rows, column) for column in found)
        return cosine, neighbors
