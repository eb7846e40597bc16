"""The feature bank: the latest feature of every image, and nearest-neighbor search among them."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.distributed.world import World
from wcl.neighbors.approximate import ApproximateSearch
from wcl.neighbors.sharded import ShardedFeatures
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError, RunError
from wcl.system.machine import available_memory
from wcl.system.progress import track
from wcl.system.units import size

_BYTES = 2  # half precision
# Number of images up to which every pair is compared: about a minute for 512 features.
_EXACT_UP_TO = {"cpu": 100_000, "cuda": 2_000_000}
_QUERIES_AT_A_TIME = 2**13
# Rows that are sent at a time when the shards are gathered for a checkpoint.
_ROWS_AT_A_TIME = 2**10


class SearchResult(NamedTuple):
    """The nearest neighbors of some images."""

    rows: Tensor
    """(n,) the queried images that have a feature."""
    neighbors: Tensor
    """(n, k) their nearest images, most similar first; k is smaller if the bank has fewer."""
    similarity: Tensor
    """(n, k) cosines."""
    recall: float
    """Fraction of the true neighbors found: 1 for exact search, else measured on a sample."""


class FeatureBank:
    """One unit vector in half precision for every image, on the host.

    The rows are sharded evenly among the processes, which must all call `store`, `search` and
    `state`.

    Args:
        num_images: number of images.
        feature_dim: dimensions of a feature.
        folder: where to keep the features in a memory-mapped file; None to keep them in memory.
        world: the processes.

    Raises:
        InputError: there is not enough memory.
        RunError: there is not enough disk space.
    """

    def __init__(
        self,
        num_images: int,
        feature_dim: int,
        folder: Path | None = None,
        world: World | None = None,
    ) -> None:
        self._world = world or World()
        self._shape = (num_images, feature_dim)
        self.bytes = num_images * feature_dim * _BYTES
        """Size of all shards together."""
        self.seen = torch.zeros(num_images, dtype=torch.bool)
        """Which images have a feature, on any process."""
        self._pending: tuple[Tensor, Tensor, Any] | None = None
        ends = [num_images * rank // self._world.size for rank in range(self._world.size + 1)]
        counts = np.diff(ends).tolist()
        features = self._allocate(counts[self._world.rank], folder)
        self._shards = ShardedFeatures(features, self._world, counts)

    def _allocate(self, rows: int, folder: Path | None) -> Tensor:
        """Return zeros for the local rows."""
        if folder is not None and rows:
            return _memory_map(folder, rows, self._shape[1])
        available = available_memory()
        if rows * self._shape[1] * _BYTES * self._world.local_size > available:
            raise InputError(
                f"--crops.bank: {self.describe()} is more than the {available / 1e9:.1f} GB "
                "of available memory; use --crops.bank disk"
            )
        return torch.zeros(rows, self._shape[1], dtype=torch.float16)

    @property
    def features(self) -> Tensor:
        """The local rows."""
        self._flush()
        return self._shards.features

    def describe(self) -> str:
        """Return its size as text: 1,281,167 images × 2048 features × 2 B = 5.2 GB."""
        images, dimensions = self._shape
        text = f"{images:,} images × {dimensions} features × {_BYTES} B = {size(self.bytes)}"
        processes = self._world.size
        if processes == 1:
            return text
        return f"{text}, {size(self.bytes / processes)} in each of {processes} processes"

    def store(self, by_process: list[Integers], h: Tensor) -> None:
        """Store the features of a step, each on the process that holds its row.

        Copies from a GPU run in the background: features are written to the bank in the next step
        or when they are needed, so that no step waits.

        Args:
            by_process: the images of each process.
            h: (n, D) features of the local images.
        """
        rank = self._world.rank
        features = F.normalize(h.detach().float(), dim=1).half()
        rows = [torch.from_numpy(index) for index in by_process]
        owners = [self._shards.owners(index) for index in rows]
        if self._world.size > 1:
            order = owners[rank].argsort(stable=True)
            sent = owners[rank].bincount(minlength=self._world.size).tolist()
            received = [int((owner == rank).sum()) for owner in owners]
            features = self._world.all_to_all(features[order.to(h.device)], sent, received)
        local = torch.cat([index[owner == rank] for index, owner in zip(rows, owners, strict=True)])
        self.seen[torch.cat(rows)] = True
        copied = None
        if features.is_cuda:
            features = features.to("cpu", non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        self._flush()
        self._pending = local - self._shards.offset, features.cpu(), copied

    def _flush(self) -> None:
        """Write the features of the last step to the bank."""
        if self._pending is not None:
            rows, features, copied = self._pending
            if copied is not None:
                copied.synchronize()
            self._shards.features[rows] = features
            self._pending = None

    def search(
        self,
        k: int,
        rows: Tensor | None = None,
        mode: Literal["auto", "exact", "approximate"] = "auto",
        device: torch.device | None = None,
    ) -> SearchResult:
        """Find the k nearest other images of each of these images.

        Images without a feature are neither searched nor found. The result is the same on every
        process and, for exact search, for any number of processes; equally similar images come by
        ascending number.

        Args:
            k: number of neighbors.
            rows: numbers of images, the same on every process; None for all.
            mode: exact, approximate, or auto to choose by the number of images.
            device: where exact search computes; None for the host.
        """
        self._flush()
        candidates = self.seen.nonzero()[:, 0]
        rows = candidates if rows is None else rows[self.seen[rows]]
        k = min(k, len(candidates) - 1)
        if mode == "auto":
            limit = _EXACT_UP_TO.get("cpu" if device is None else device.type, _EXACT_UP_TO["cpu"])
            few = len(candidates) <= limit or len(rows) <= _QUERIES_AT_A_TIME
            mode = "exact" if few else "approximate"
        if mode == "exact":
            similarity, neighbors = self._shards.nearest(rows, k, candidates, device)
            return SearchResult(rows, neighbors, similarity, 1.0)
        approximate = ApproximateSearch(self._shards, k, candidates)
        parts = rows.split(_QUERIES_AT_A_TIME)
        parts = track(parts, "finding neighbors") if self._world.is_rank_zero else parts
        results = [approximate.nearest(part) for part in parts]
        similarity, neighbors = (torch.cat(column) for column in zip(*results, strict=True))
        return SearchResult(rows, neighbors, similarity, approximate.recall)

    def fetch(self, rows: Tensor) -> Tensor:
        """Return the features of these images, (n, D) in half precision, on every process."""
        self._flush()
        return self._shards.fetch(rows)

    def state(self, folder: Path) -> dict[str, Tensor]:
        """Return the state for a checkpoint, on rank 0; an empty dict on other ranks.

        Args:
            folder: where rank 0 gathers the shards in a temporary file.

        Raises:
            RunError: there is no room for it (see `World.run_on_all_ranks`).
        """
        self._flush()
        features = self.features if self._world.size == 1 else self._gather(folder)
        return {"features": features, "seen": self.seen} if self._world.is_rank_zero else {}

    def _gather(self, folder: Path) -> Tensor:
        """Return all features on rank 0, with only some of the other shards in memory."""
        is_rank_zero = self._world.is_rank_zero
        gathered = self._world.run_on_all_ranks(
            lambda: _memory_map(folder, *self._shape) if is_rank_zero else self.features[:0]
        )
        for rows in torch.arange(len(self.seen)).split(_ROWS_AT_A_TIME):
            features = self._shards.fetch(rows)
            if is_rank_zero:
                gathered[rows] = features
        return gathered

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned, on any number of processes."""
        offset = self._shards.offset
        self.features.copy_(state["features"][offset : offset + len(self.features)])
        self.seen.copy_(state["seen"])


def _memory_map(folder: Path, rows: int, dimensions: int) -> Tensor:
    """Return a file of zeros as a tensor, its disk space already allocated.

    The file is unlinked once it is mapped, so the system removes it when the process ends.

    Raises:
        RunError: there is no room for it.
    """
    count = rows * dimensions
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = mkstemp(dir=folder, prefix=".bank-")
        try:
            if hasattr(os, "posix_fallocate"):  # elsewhere the file grows when it is mapped
                os.posix_fallocate(descriptor, 0, count * _BYTES)
            flat = torch.from_file(name, shared=True, size=count, dtype=torch.float16)
        finally:
            os.close(descriptor)
            with suppress(PermissionError):  # Windows cannot remove a mapped file
                Path(name).unlink()
    except OSError as error:
        raise RunError(
            f"{folder}: no room for a feature bank of {size(count * _BYTES)} ({error.strerror})"
        ) from error
    return flat.view(rows, dimensions)
