"""What large batches cost: memory and time of the losses, and what processes tell each other.

The losses compute the similarities of all pairs a tile at a time. The plain way, which holds them
all, is here only to be compared with, where memory is large enough for it.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.memory import in_new_process
from benchmarks.micro_batch import micro_batch
from benchmarks.timing import medians
from wcl.ops.losses import nt_xent, swap
from wcl.ops.weak_labels import weak_labels
from wcl.system import machine
from wcl.system.progress import track

_IMAGES = (2**10, 2**12, 2**14, 2**16)
_DIMENSIONS = 128
_TAU = 0.1
_PLAIN_MATRICES = 6  # of all pairs, that the plain way holds at the same time
_BATCH, _PROCESSES = 4096, 32  # the paper's
_FLOAT, _INTEGER = 4, 8  # bytes


def measure(rounds: int) -> dict[str, float]:
    """Growth with the batch, and the figures that it is for."""
    return losses(rounds) | micro_batch(rounds) | communication()


def losses(rounds: int) -> dict[str, float]:
    """The losses and labels of a step of WCL, by tiles and the plain way, without the network.

    Memory is that of everything but the program, measured in a process of its own. Where only one
    way fits there is nothing to alternate with, and the seconds are those of that one step.
    """
    found: dict[str, float] = {}
    ways = {images: _ways_that_fit(images) for images in _IMAGES}
    for images in track(_IMAGES, "memory of the losses of growing batches"):
        for way in ways[images]:
            gigabytes, seconds = in_new_process(_first_step, way, images)
            found |= {f"{way}_gb_{images}": gigabytes, f"{way}_seconds_{images}": seconds}
    for images in _IMAGES:
        if len(ways[images]) > 1:
            rows = _embeddings(images)
            both = medians({way: partial(_STEPS[way], *rows) for way in ways[images]}, rounds)
            found |= {f"{way}_seconds_{images}": both[way] for way in both}
            found["tiled_over_plain"] = both["tiled"] / both["plain"]
    return found | {"tiled_peak_gb": found[f"tiled_gb_{max(_IMAGES)}"]}


def communication() -> dict[str, float]:
    """Bytes that a process receives in a step of WCL, here and by the authors' published code."""
    return {
        "bytes_per_step": gathered_bytes(_BATCH, _PROCESSES, _DIMENSIONS, gradient=True)
        + neighbor_bytes(_BATCH, _PROCESSES),
        "authors_bytes_per_step": gathered_bytes(_BATCH, _PROCESSES, _DIMENSIONS, gradient=False)
        + mask_bytes(_BATCH, _PROCESSES),
        "label_bytes_per_step": neighbor_bytes(_BATCH, _PROCESSES),
        "authors_label_bytes_per_step": mask_bytes(_BATCH, _PROCESSES),
        # All masks are made by one process, which sends each of the others its own.
        "authors_label_bytes_sent_by_one": (_PROCESSES - 1) * mask_bytes(_BATCH, _PROCESSES),
    }


def gathered_bytes(batch_size: int, processes: int, dimensions: int, gradient: bool) -> int:
    """z and v of both views of the others' images; and of its own, what the others add to their
    gradient, which the authors' code does not ask for."""
    others = batch_size - batch_size // processes
    return 4 * others * dimensions * _FLOAT * (2 if gradient else 1)


def neighbor_bytes(batch_size: int, processes: int) -> int:
    """For the labels of two views: the neighbor of each of the others' images."""
    return 2 * (batch_size - batch_size // processes) * _INTEGER


def mask_bytes(batch_size: int, processes: int) -> int:
    """For the labels of two views the authors' way: who is like each of its own, as numbers."""
    return 2 * (batch_size // processes) * batch_size * _FLOAT


def _embeddings(images: int) -> list[Tensor]:
    """z1, z2, v1, v2."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(images, _DIMENSIONS, generator=generator).requires_grad_() for _ in range(4)
    ]


def _tiled(z1: Tensor, z2: Tensor, v1: Tensor, v2: Tensor) -> float:
    loss = nt_xent(z1, z2, _TAU) + swap(v1, v2, weak_labels(v1), weak_labels(v2), _TAU)
    loss.backward()
    return loss.item()


def _plain(z1: Tensor, z2: Tensor, v1: Tensor, v2: Tensor) -> float:
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    other_view = torch.arange(len(z)).roll(len(z1))
    loss = F.cross_entropy(_similarities(z), other_view)
    for v, labels in ((v1, weak_labels(v2)), (v2, weak_labels(v1))):
        keys = F.normalize(v, dim=1)
        sums = torch.zeros_like(keys).index_add(0, labels, keys)[labels]
        others = labels.bincount(minlength=len(labels))[labels] - 1
        positive = (keys * (sums - keys)).sum(dim=1) / _TAU / others.clamp(min=1)
        log_sum = _similarities(keys).logsumexp(dim=1)
        loss = loss + torch.where(others > 0, log_sum - positive, 0).mean()
    loss.backward()
    return loss.item()


def _similarities(rows: Tensor) -> Tensor:
    itself = torch.eye(len(rows), dtype=torch.bool)
    return (rows @ rows.T / _TAU).masked_fill(itself, -math.inf)


_STEPS = {"tiled": _tiled, "plain": _plain}


def _first_step(way: str, images: int) -> None:
    _STEPS[way](*_embeddings(images))


def _ways_that_fit(images: int) -> list[str]:
    fits = _PLAIN_MATRICES * _FLOAT * (2 * images) ** 2 < machine.available_memory() / 2
    return ["tiled", "plain"] if fits else ["tiled"]
