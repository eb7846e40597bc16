"""MoCo v2: instance discrimination against a queue (He et al., 2020; Chen et al., 2020).

arXiv 1911.05722 and 2003.04297. The query q is the projection of the first view, the key k⁺ the
projection of the second view by a momentum encoder, and the negatives are the keys of the last
`queue_size` images, random ones at the start:

    L = −log exp(q·k⁺/τ) / (exp(q·k⁺/τ) + Σ_{k in queue} exp(q·k/τ))

After each step the momentum encoder moves by m·teacher + (1 − m)·encoder and the keys of the
batch replace the oldest ones. The authors train with τ = 0.2, m = 0.999, 65,536 keys, SGD with a
rate of 0.03 at batch 256, and a head of 2048 hidden units without batch norm; ours has batch norm.
They shuffle the images of a batch over the processes before the keys are computed, so that a query
cannot recognize its key by the statistics of batch norm. Ours synchronizes batch norm over all
processes instead, as in their CIFAR-10 demo without splits: keys of the batch share one set of
statistics, but those of the queue have others, so some of that leak remains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config.bounds import above, at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.methods.momentum import ema_update, frozen_copy
from wcl.methods.queue import Queue, negatives_queue_size, random_directions
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views, select_views

_AUTHORS_QUEUE_SIZE = 65536


@dataclass
class MoCoSettings:
    """Settings of MoCo v2."""

    temperature: Annotated[float, above(0)] = 0.2
    """Temperature τ of the loss."""
    momentum: Annotated[float, between(0, 1)] = 0.999
    """Momentum m of the momentum encoder."""
    queue_size: Annotated[int, at_least(0)] = 0
    """Keys in the queue; 0 for 65,536 or, if that is less, for a quarter of the images."""


class MoCo(Method):
    """A query finds the key of its own image among a queue of past keys."""

    Settings: ClassVar[type[Any]] = MoCoSettings
    supports_crops = False

    def __init__(self, encoder: Encoder, settings: MoCoSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        self.teacher = frozen_copy(encoder)
        size = negatives_queue_size(settings.queue_size, _AUTHORS_QUEUE_SIZE, info)
        self.queue = Queue(random_directions(size, encoder.description.model.head_out_dim))
        self._keys: Tensor | None = None

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return embed_views(self.encoder, select_views(views, 0, 1))

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"g": embed_views(self.teacher, select_views(views, 1, 2))["g"]}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        q, k = F.normalize(out["g"][0], dim=1), F.normalize(targets["g"][0], dim=1)
        loss = self.instance_losses(q, k, shard).sum() / len(shard)
        self._keys = shard.gather(k)
        return Losses(loss, {"nce": loss}, (q, k))

    def instance_losses(self, q: Tensor, k: Tensor, shard: BatchShard) -> Tensor:
        """Return (n,) the losses of the local queries, given their keys."""
        return queue_nce(q, k, self.queue.rows, self.settings.temperature)

    def after_step(self, progress: float) -> None:
        ema_update(self.teacher, self.encoder, self.settings.momentum)
        assert self._keys is not None
        self.queue.enqueue(self._keys)


def queue_nce(q: Tensor, k: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Compute InfoNCE against a queue: (n, D), (n, D), (K, D), all of length one → (n,)."""
    positive = (q * k).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, q @ queue.T], dim=1) / temperature
    return torch.logsumexp(logits, dim=1) - logits[:, 0]
