"""Large batches: memory and time of the losses, and bytes sent between processes.

The losses compute the similarities of all pairs one tile at a time. The plain version here, which
holds all of them, is the baseline wherever it fits into memory.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.memory import first_cost, in_new_process
from benchmarks.micro_batch import micro_batch
from benchmarks.timing import medians
from wcl.ops.losses import nt_xent, swap
from wcl.ops.weak_labels import weak_labels
from wcl.system import machine
from wcl.system.progress import track

_IMAGES = (2**10, 2**12, 2**14, 2**16)
_DIMENSIONS = 128
_TAU = 0.1
_PLAIN_MATRICES = 6  # similarity matrices that the plain version holds at once
_BATCH, _PROCESSES = 4096, 32  # the paper's
_FLOAT, _INTEGER = 4, 8  # bytes


def measure(rounds: int) -> dict[str, float]:
    """Return the figures of the losses, of micro-batches and of communication."""
    return losses(rounds) | micro_batch(rounds) | communication()


def losses(rounds: int) -> dict[str, float]:
    """Compare the tiled and the plain losses and weak labels of a WCL step, without the network.

    Memory is the peak above that of a fresh process. Where the plain version does not fit, the
    seconds are those of a single tiled step.
    """
    figures: dict[str, float] = {}
    versions = {images: _versions_that_fit(images) for images in _IMAGES}
    for images in track(_IMAGES, "memory of the losses by batch size"):
        for name in versions[images]:
            seconds, gigabytes = in_new_process(first_cost, _first_step, name, images)
            figures |= {f"{name}_gb_{images}": gigabytes, f"{name}_seconds_{images}": seconds}
    for images in _IMAGES:
        if len(versions[images]) > 1:
            rows = embeddings(images)
            steps = {name: partial(_STEPS[name], *rows) for name in versions[images]}
            seconds_of = medians(steps, rounds)
            figures |= {f"{name}_seconds_{images}": s for name, s in seconds_of.items()}
            figures["tiled_over_plain"] = seconds_of["tiled"] / seconds_of["plain"]
    return figures | {"tiled_peak_gb": figures[f"tiled_gb_{max(_IMAGES)}"]}


def communication() -> dict[str, float]:
    """Return the bytes that a process receives in a WCL step, here and in the authors' code."""
    return {
        "bytes_per_step": gathered_bytes(_BATCH, _PROCESSES, _DIMENSIONS, gradient=True)
        + neighbor_bytes(_BATCH, _PROCESSES),
        "authors_bytes_per_step": gathered_bytes(_BATCH, _PROCESSES, _DIMENSIONS, gradient=False)
        + mask_bytes(_BATCH, _PROCESSES),
        "label_bytes_per_step": neighbor_bytes(_BATCH, _PROCESSES),
        "authors_label_bytes_per_step": mask_bytes(_BATCH, _PROCESSES),
        # One process computes all masks and sends each of the others its own.
        "authors_label_bytes_sent_by_one": (_PROCESSES - 1) * mask_bytes(_BATCH, _PROCESSES),
    }


def gathered_bytes(batch_size: int, processes: int, dimensions: int, gradient: bool) -> int:
    """Return the bytes of z and v of both views of the other processes' images.

    With `gradient`, also of the gradients that they send back, which the authors' code omits.
    """
    others = batch_size - batch_size // processes
    return 4 * others * dimensions * _FLOAT * (2 if gradient else 1)


def neighbor_bytes(batch_size: int, processes: int) -> int:
    """Return the bytes of the neighbor indices of the other processes' images, for two views."""
    return 2 * (batch_size - batch_size // processes) * _INTEGER


def mask_bytes(batch_size: int, processes: int) -> int:
    """Return the bytes of the authors' similarity masks of the local images, for two views."""
    return 2 * (batch_size // processes) * batch_size * _FLOAT


def embeddings(images: int) -> list[Tensor]:
    """Return random z1, z2, v1 and v2."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(images, _DIMENSIONS, generator=generator).requires_grad_() for _ in range(4)
    ]


def tiled(z1: Tensor, z2: Tensor, v1: Tensor, v2: Tensor) -> float:
    """Compute weak labels, losses and gradients as WCL does; return the loss."""
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
    self_pairs = torch.eye(len(rows), dtype=torch.bool)
    return (rows @ rows.T / _TAU).masked_fill(self_pairs, -math.inf)


_STEPS = {"tiled": tiled, "plain": _plain}


def _first_step(version: str, images: int) -> None:
    _STEPS[version](*embeddings(images))


def _versions_that_fit(images: int) -> list[str]:
    fits = _PLAIN_MATRICES * _FLOAT * (2 * images) ** 2 < machine.available_memory() / 2
    return ["tiled", "plain"] if fits else ["tiled"]
