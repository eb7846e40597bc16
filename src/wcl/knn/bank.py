"""The feature bank: what the encoder last made of every image, and who is near whom in it."""

import os
from collections import deque
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.errors import InputError, RunError
from wcl.knn.approximate import ApproximateSearch
from wcl.knn.exact import nearest
from wcl.machine import available_memory
from wcl.progress import track
from wcl.randomness import Integers

_BYTES = 2  # half precision
# Up to so many images every one is compared with every other: about a minute for 512 features.
_EXACT_UP_TO = {"cpu": 100_000, "cuda": 2_000_000}
_QUERIES_AT_A_TIME = 2**13


class Found(NamedTuple):
    """The neighbours of some images."""

    rows: Tensor
    """(n,) the images that were asked about and have a feature."""
    neighbours: Tensor
    """(n, k) their nearest, most similar first; fewer than were asked for if the bank has fewer."""
    similarity: Tensor
    """(n, k) cosines."""
    recall: float
    """Share of the true neighbours found: 1 for exact search, else measured on a sample."""


class FeatureBank:
    """One unit vector in half precision for every image, by its number, on the host.

    Args:
        images: how many.
        dimensions: of a feature.
        folder: where to keep them in a file, mapped into memory; None for memory itself.

    Raises:
        InputError: memory or disk is too small for it.
    """

    def __init__(self, images: int, dimensions: int, folder: Path | None = None) -> None:
        self.bytes = images * dimensions * _BYTES
        self.seen = torch.zeros(images, dtype=torch.bool)
        self._arriving: deque[tuple[Tensor, Tensor, Any]] = deque()
        if folder is None:
            available = available_memory()
            if self.bytes > available:
                raise InputError(
                    f"--crops.bank: {self.describe()} is more than the {available / 1e9:.1f} GB "
                    "of memory at hand; use --crops.bank disk"
                )
            self.features = torch.zeros(images, dimensions, dtype=torch.float16)
        else:
            self.features = _mapped(folder, images, dimensions)

    def describe(self) -> str:
        """Its size in words: 1,281,167 images × 2048 features × 2 B = 5.2 GB."""
        images, dimensions = len(self.seen), self.bytes // (_BYTES * max(1, len(self.seen)))
        size = f"{self.bytes / 1e9:.1f} GB" if self.bytes >= 1e9 else f"{self.bytes / 1e6:.0f} MB"
        return f"{images:,} images × {dimensions} features × {_BYTES} B = {size}"

    def store(self, index: Integers, h: Tensor) -> None:
        """Keep the features (n, D) of these images.

        From a GPU they are copied while it works on; what a step sent is put in its place during
        the next, so that no step waits.
        """
        features = F.normalize(h.detach().float(), dim=1).half()
        sent = None
        if features.is_cuda:
            features = features.to("cpu", non_blocking=True)
            sent = torch.cuda.Event()
            sent.record()
        self._arriving.append((torch.from_numpy(index), features.cpu(), sent))
        self._settle(waiting=1 if sent is not None else 0)

    def _settle(self, waiting: int = 0) -> None:
        """Put what has arrived in its place, but for the last `waiting`."""
        while len(self._arriving) > waiting:
            rows, features, sent = self._arriving.popleft()
            if sent is not None:
                sent.synchronize()
            self.features[rows] = features
            self.seen[rows] = True

    def search(
        self,
        k: int,
        rows: Tensor | None = None,
        how: Literal["auto", "exact", "approximate"] = "auto",
        device: torch.device | None = None,
    ) -> Found:
        """The k nearest of each of these images (None for all), themselves left out.

        Images never stored are neither found nor asked about.

        Args:
            k: neighbours wanted.
            rows: numbers of images.
            how: exact, approximate, or by the number of images.
            device: where to compute, if exact; None for the host.

        Raises:
            RunError: fewer than two images have a feature.
        """
        self._settle()
        candidates = self.seen.nonzero()[:, 0]
        rows = candidates if rows is None else rows[self.seen[rows]]
        k = min(k, len(candidates) - 1)
        if k < 1:
            raise RunError("the neighbours of fewer than two readable images cannot be found")
        if how == "auto":
            most = _EXACT_UP_TO.get("cpu" if device is None else device.type, _EXACT_UP_TO["cpu"])
            few = len(candidates) <= most or len(rows) <= _QUERIES_AT_A_TIME
            how = "exact" if few else "approximate"
        parts = []
        approximate = None if how == "exact" else ApproximateSearch(self.features, k, candidates)
        every = None if len(candidates) == len(self.seen) else candidates
        for part in track(rows.split(_QUERIES_AT_A_TIME), "finding neighbours"):
            if approximate is None:
                queries = self.features[part]
                parts.append(nearest(queries, self.features, k, part, every, device))
            else:
                parts.append(approximate.nearest(part))
        similarity, neighbours = (torch.cat(column) for column in zip(*parts, strict=True))
        recall = 1.0 if approximate is None else approximate.recall
        return Found(rows, neighbours, similarity, recall)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        self._settle()
        return {"features": self.features, "seen": self.seen}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave.

        Raises:
            InputError: it is of another data set or another encoder.
        """
        if state["features"].shape != self.features.shape or len(state["seen"]) != len(self.seen):
            raise InputError("the checkpoint's feature bank is of other images or features")
        self.features.copy_(state["features"])
        self.seen.copy_(state["seen"])


def _mapped(folder: Path, images: int, dimensions: int) -> Tensor:
    """A file of zeros as a tensor; its place on the disk is taken now, not when it is written.

    It loses its name as soon as it is mapped: nobody else can come upon it, and it is gone with the
    process, however that ends.
    """
    count = images * dimensions
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix=".bank-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, count * _BYTES)
            else:
                file.truncate(count * _BYTES)
            flat = torch.from_file(file.name, shared=True, size=count, dtype=torch.float16)
    except OSError as error:
        raise InputError(
            f"{folder}: no place for a feature bank of {count * _BYTES / 1e9:.1f} GB "
            f"({error.strerror})"
        ) from error
    return flat.view(images, dimensions)
