"""The embeddings of an epoch's last steps, and whether they are healthy."""

import math
from typing import Any

import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.distributed.sharding import BatchShard
from wcl.ops import diagnostics as health
from wcl.training.step import Step


class LastEmbeddings:
    """As many as `log.health` asks for; none are kept if it is 0."""

    def __init__(self, config: PretrainConfig, steps_per_epoch: int) -> None:
        self._count = config.log.health
        # Steps of an epoch before those that they come from.
        self._before = steps_per_epoch - math.ceil(self._count / config.batch_size)
        self._parts: list[tuple[Tensor, ...]] = []

    def add(self, in_epoch: int, taken: Step, shard: BatchShard) -> None:
        """Keep those of a step, counted from 1 in its epoch, if it is one of the last."""
        if in_epoch > self._before:
            z1, z2 = taken.losses.pair
            columns = taken.features, z1.detach(), z2.detach()
            self._parts.append(shard.gather_embeddings(*columns))

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
