"""SimCLR v2: SimCLR with a memory (Chen et al., 2020, arXiv 2006.10029).

The memory is that of MoCo: a momentum encoder embeds both views, and the keys k of the current and
of past batches are what an anchor is compared with. For the anchor z of one view of an image,

    L = −log exp(z·k⁺/τ) / Σ_k exp(z·k/τ)

where k⁺ is the key of the other view of the image, and k runs over k⁺, the keys of both views of
all other images of the batch, and the queue; the loss is the mean over both views. The queue holds
one key per image, that of its second view. (The authors published no code of the memory; that the
positive is a key, too, is how they describe it in their repository.)

The other changes to SimCLR are a deeper head (`--model.head_layers 3`), fine-tuning from its first
layer (`wcl eval finetune --from projection`) and distillation (`--distill`). The authors train
with τ = 0.1, m = 0.999, 65,536 keys and SimCLR's augmentation, and LARS with a rate of 0.1·√batch
and weight decay 1e-4 for 800 epochs at batch 4,096.
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
from wcl.models.multiview import embed_views
from wcl.ops.tiled_losses import log_sum_over_all

_AUTHORS_QUEUE_SIZE = 65536


@dataclass
class SimCLRv2Settings:
    """Settings of SimCLR v2."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the loss."""
    momentum: Annotated[float, between(0, 1)] = 0.999
    """Momentum m of the momentum encoder."""
    queue_size: Annotated[int, at_least(0)] = 0
    """Keys in the queue; 0 for 65,536 or, if that is less, for a quarter of the images."""


class SimCLRv2(Method):
    """A view finds the key of the other view among the keys of the batch and of past ones."""

    Settings: ClassVar[type[Any]] = SimCLRv2Settings
    supports_crops = False

    def __init__(self, encoder: Encoder, settings: SimCLRv2Settings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        self.teacher = frozen_copy(encoder)
        size = negatives_queue_size(settings.queue_size, _AUTHORS_QUEUE_SIZE, info)
        self.queue = Queue(random_directions(size, encoder.description.model.head_out_dim))
        self._keys: Tensor | None = None

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"g": embed_views(self.teacher, views)["g"]}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        z, k = F.normalize(out["g"], dim=2), F.normalize(targets["g"], dim=2)
        k1, k2 = shard.gather_embeddings(k[0], k[1])
        self._keys = k2
        every = torch.arange(len(shard), device=z.device)
        own = shard.local(every)  # an anchor's own view is neither a positive nor a negative
        anchors = z.flatten(0, 1) / self.settings.temperature
        keys = torch.cat([k1, k2, self.queue.rows])
        log_sum = log_sum_over_all(anchors, keys, torch.cat([own, own + len(shard)]))
        positive = (anchors * k.flip(0).flatten(0, 1)).sum(dim=1)
        loss = (log_sum - positive).sum() / (2 * len(shard))
        return Losses(loss, {"nce": loss}, (z[0], z[1]))

    def after_step(self, progress: float) -> None:
        ema_update(self.teacher, self.encoder, self.settings.momentum)
        assert self._keys is not None
        self.queue.enqueue(self._keys)
