"""The feature bank: what the encoder last made of every image, and who is near whom in it."""

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.distributed.world import World
from wcl.neighbors.approximate import ApproximateSearch
from wcl.neighbors.shards import Shards
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError, RunError
from wcl.system.machine import available_memory
from wcl.system.progress import track

_BYTES = 2  # half precision
# Up to so many images every one is compared with every other: about a minute for 512 features.
_EXACT_UP_TO = {"cpu": 100_000, "cuda": 2_000_000}
_QUERIES_AT_A_TIME = 2**13
# Rows that every process sends at a time when the bank is put together.
_ROWS_AT_A_TIME = 2**10


class Found(NamedTuple):
    """The neighbors of some images."""

    rows: Tensor
    """(n,) the images that were asked about and have a feature."""
    neighbors: Tensor
    """(n, k) their nearest, most similar first; fewer than were asked for if the bank has fewer."""
    similarity: Tensor
    """(n, k) cosines."""
    recall: float
    """Share of the true neighbors found: 1 for exact search, else measured on a sample."""


class FeatureBank:
    """One unit vector in half precision for every image, by its number, on the host.

    Every process keeps an equal part of them. All processes take part in `store`, `search` and
    `state`.

    Args:
        images: how many.
        dimensions: of a feature.
        folder: where to keep them in a file, mapped into memory; None for memory itself.
        world: the processes.

    Raises:
        InputError: memory or disk is too small for it.
    """

    def __init__(
        self,
        images: int,
        dimensions: int,
        folder: Path | None = None,
        world: World | None = None,
    ) -> None:
        self._world = world or World()
        self._shape = (images, dimensions)
        self.bytes = images * dimensions * _BYTES
        """Of all processes together."""
        self.seen = torch.zeros(images, dtype=torch.bool)
        """Which images have a feature, whoever keeps it."""
        self._arriving: deque[tuple[Tensor, Tensor, Any]] = deque()
        ends = [images * rank // self._world.size for rank in range(self._world.size + 1)]
        counts = np.diff(ends).tolist()
        features = self._place(counts[self._world.rank], folder)
        self._shards = Shards(features, self._world, counts)

    def _place(self, rows: int, folder: Path | None) -> Tensor:
        """Zeros for the rows that this process keeps."""
        if folder is not None and rows:
            try:
                return _mapped(folder, rows, self._shape[1])
            except OSError as error:
                raise InputError(
                    f"{folder}: no place for a feature bank of {_size(self.bytes)} "
                    f"({error.strerror})"
                ) from error
        available = available_memory()
        if rows * self._shape[1] * _BYTES * self._world.here > available:
            raise InputError(
                f"--crops.bank: {self.describe()} is more than the {available / 1e9:.1f} GB "
                "of memory at hand; use --crops.bank disk"
            )
        return torch.zeros(rows, self._shape[1], dtype=torch.float16)

    @property
    def features(self) -> Tensor:
        """The rows that this process keeps."""
        return self._shards.features

    def describe(self) -> str:
        """Its size in words: 1,281,167 images × 2048 features × 2 B = 5.2 GB."""
        images, dimensions = self._shape
        words = f"{images:,} images × {dimensions} features × {_BYTES} B = {_size(self.bytes)}"
        processes = self._world.size
        if processes == 1:
            return words
        return f"{words}, {_size(self.bytes / processes)} in each of {processes} processes"

    def store(self, by_process: list[Integers], h: Tensor) -> None:
        """Keep the features (n, D) of the images that this process has.

        From a GPU they are copied while it works on; what a step sent is put in its place during
        the next, so that no step waits.

        Args:
            by_process: for every process the images that it has.
            h: the features of those of this one.
        """
        rank = self._world.rank
        features = F.normalize(h.detach().float(), dim=1).half()
        rows = [torch.from_numpy(index) for index in by_process]
        keepers = [self._shards.keepers(index) for index in rows]
        if self._world.size > 1:
            order = keepers[rank].argsort(stable=True)
            sent = keepers[rank].bincount(minlength=self._world.size).tolist()
            received = [int((kept == rank).sum()) for kept in keepers]
            features = self._world.exchange(features[order.to(h.device)], sent, received)
        arriving = torch.cat(
            [index[kept == rank] for index, kept in zip(rows, keepers, strict=True)]
        )
        self.seen[torch.cat(rows)] = True
        copied = None
        if features.is_cuda:
            features = features.to("cpu", non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        self._arriving.append((arriving - self._shards.first, features.cpu(), copied))
        self._settle(waiting=1 if copied is not None else 0)

    def _settle(self, waiting: int = 0) -> None:
        """Put what has arrived in its place, but for the last `waiting`."""
        while len(self._arriving) > waiting:
            rows, features, copied = self._arriving.popleft()
            if copied is not None:
                copied.synchronize()
            self.features[rows] = features

    def search(
        self,
        k: int,
        rows: Tensor | None = None,
        how: Literal["auto", "exact", "approximate"] = "auto",
        device: torch.device | None = None,
    ) -> Found:
        """The k nearest of each of these images (None for all), themselves left out.

        Images never stored are neither found nor asked about. The answer is the same on every
        process, and if exact, with any number of them; of equally similar images the lower number
        comes first.

        Args:
            k: neighbors wanted.
            rows: numbers of images, the same on every process.
            how: exact, approximate, or by the number of images.
            device: where to compute, if exact; None for the host.

        Raises:
            RunError: fewer than two images have a feature (raised as by `World.agree`).
        """
        self._settle()
        candidates = self.seen.nonzero()[:, 0]
        rows = candidates if rows is None else rows[self.seen[rows]]
        k = min(k, len(candidates) - 1)
        self._world.run_on_all_ranks(lambda: _must_be_several(len(candidates)))
        if how == "auto":
            most = _EXACT_UP_TO.get("cpu" if device is None else device.type, _EXACT_UP_TO["cpu"])
            few = len(candidates) <= most or len(rows) <= _QUERIES_AT_A_TIME
            how = "exact" if few else "approximate"
        if how == "exact":
            similarity, neighbors = self._shards.nearest(rows, k, candidates, device)
            return Found(rows, neighbors, similarity, 1.0)
        approximate = ApproximateSearch(self._shards, k, candidates)
        parts: Iterable[Tensor] = rows.split(_QUERIES_AT_A_TIME)
        if self._world.is_rank_zero:
            parts = track(parts, "finding neighbors")
        answers = [approximate.nearest(part) for part in parts]
        similarity, neighbors = (torch.cat(column) for column in zip(*answers, strict=True))
        return Found(rows, neighbors, similarity, approximate.recall)

    def state(self, folder: Path) -> dict[str, Tensor]:
        """What a checkpoint keeps of it, on process 0; nothing on the others.

        Args:
            folder: where process 0 puts together, in a file that has no name, what the others keep.

        Raises:
            RunError: there is no place for it (raised as by `World.agree`).
        """
        self._settle()
        features = self.features if self._world.size == 1 else self._whole(folder)
        return {"features": features, "seen": self.seen} if self._world.is_rank_zero else {}

    def _whole(self, folder: Path) -> Tensor:
        """The features of all on process 0, never more than some rows of each in its memory."""
        counts, first = self._shards.counts, self._world.is_rank_zero

        def place() -> Tensor:
            try:
                return _mapped(folder, *self._shape) if first else self.features[:0]
            except OSError as error:
                raise RunError(
                    f"{folder}: no place for {_size(self.bytes)} to put the feature bank together "
                    f"for the checkpoint ({error.strerror})"
                ) from error

        whole = self._world.run_on_all_ranks(place)
        for start in range(0, max(counts), _ROWS_AT_A_TIME):
            part = self.features[start : start + _ROWS_AT_A_TIME]
            sizes = [min(max(0, count - start), _ROWS_AT_A_TIME) for count in counts]
            sent = [len(part)] + [0] * (self._world.size - 1)
            received = sizes if first else [0] * self._world.size
            arrived = self._world.exchange(part, sent, received)
            if first:
                begins = np.cumsum([0, *counts[:-1]]) + start
                for begin, rows in zip(begins, arrived.split(sizes), strict=True):
                    whole[begin : begin + len(rows)] = rows
        return whole

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave, on whatever number of processes.

        Raises:
            InputError: it is of another data set or another encoder.
        """
        if state["features"].shape != self._shape or len(state["seen"]) != len(self.seen):
            raise InputError("the checkpoint's feature bank is of other images or features")
        first = self._shards.first
        self.features.copy_(state["features"][first : first + len(self.features)])
        self.seen.copy_(state["seen"])


def _must_be_several(images: int) -> None:
    if images < 2:
        raise RunError("the neighbors of fewer than two readable images cannot be found")


def _size(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def _mapped(folder: Path, images: int, dimensions: int) -> Tensor:
    """A file of zeros as a tensor; its place on the disk is taken now, not when it is written.

    It loses its name as soon as it is mapped: nobody else can come upon it, and it is gone with the
    process, however that ends.
    """
    count = images * dimensions
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=".bank-") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, count * _BYTES)
        else:
            file.truncate(count * _BYTES)
        flat = torch.from_file(file.name, shared=True, size=count, dtype=torch.float16)
    return flat.view(images, dimensions)
