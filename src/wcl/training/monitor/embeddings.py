"""Diagnostics of the embeddings of an epoch's last steps."""

import math
from typing import Any

import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.distributed.sharding import BatchShard
from wcl.ops import diagnostics
from wcl.training.step import Step


class LastEmbeddings:
    """The last `log.health` embeddings of an epoch; none if it is 0."""

    def __init__(self, config: PretrainConfig, steps_per_epoch: int) -> None:
        self._count = config.log.health
        self._first_step = steps_per_epoch - math.ceil(self._count / config.batch_size) + 1
        self._parts: list[tuple[Tensor, ...]] = []

    def add(self, step_in_epoch: int, result: Step, shard: BatchShard) -> None:
        """Keep the embeddings of a step, counted from 1 in its epoch, if it is one of the last."""
        if step_in_epoch >= self._first_step:
            z1, z2 = result.losses.pair
            columns = result.features, z1.detach(), z2.detach()
            self._parts.append(shard.gather_embeddings(*columns))

    def diagnostics(self) -> dict[str, float]:
        """Compute metrics that need no labels."""
        if not self._parts:
            return {}
        columns = [torch.cat(parts) for parts in zip(*self._parts, strict=True)]
        h, z1, z2 = (column[: self._count] for column in columns)
        return {
            "rankme": float(diagnostics.rankme(h)),
            "alignment": float(diagnostics.alignment(z1, z2)),
            "uniformity": float(diagnostics.uniformity(z1)),
            "collapsed": float(diagnostics.collapsed_share(z1)),
        }

    def clear(self) -> None:
        """Start another epoch."""
        self._parts.clear()

    def state(self) -> dict[str, Any]:
        return {"recent": [list(part) for part in self._parts]}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        self._parts = [tuple(t.to(device) for t in part) for part in state["recent"]]
