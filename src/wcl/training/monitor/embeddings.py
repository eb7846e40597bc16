"""The embeddings of an epoch's last steps, and whether they are healthy."""

import math
from typing import Any

import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.distributed.sharding import BatchShard
from wcl.models.encoder import Embeddings
from wcl.ops import diagnostics as health
from wcl.training.step import Step


class LastEmbeddings:
    """As many as `log.health` asks for; none are kept if it is 0."""

    def __init__(self, config: PretrainConfig, steps_per_epoch: int) -> None:
        self._count = config.log.health
        # Steps of an epoch before those that they come from.
        self._before = steps_per_epoch - math.ceil(self._count / config.batch_size)
        self._parts: list[tuple[Tensor, ...]] = []

    def add(self, in_epoch: int, taken: Step, share: BatchShard) -> None:
        """Keep those of a step, if it is one of the last; `in_epoch` is its number, from 1."""
        if in_epoch > self._before:
            self._parts.append(share.gather_all(*_sample(taken.first, taken.second)))

    def health(self) -> dict[str, float]:
        """Figures that need no labels."""
        if not self._parts:
            return {}
        columns = [torch.cat(parts) for parts in zip(*self._parts, strict=True)]
        h, z1, z2 = (column[: self._count] for column in columns)
        found = {
            "rankme": health.rankme(h),
            "alignment": health.alignment(z1, z2),
            "uniformity": health.uniformity(z1),
            "collapsed": health.collapsed_share(z1),
        }
        return {name: float(value) for name, value in found.items()}

    def clear(self) -> None:
        """Begin another epoch."""
        self._parts.clear()

    def state(self) -> dict[str, Any]:
        return {"recent": [list(part) for part in self._parts]}

    def resume(self, state: dict[str, Any], device: torch.device) -> None:
        self._parts = [tuple(t.to(device) for t in part) for part in state["recent"]]


def _sample(first: Embeddings, second: Embeddings) -> tuple[Tensor, ...]:
    """Features, and the projections of both views (of the weak-label head where g is left out)."""
    z1, z2 = (first.z, second.z) if first.z is not None else (first.v, second.v)
    assert z1 is not None and z2 is not None
    return first.h.detach(), z1.detach(), z2.detach()
