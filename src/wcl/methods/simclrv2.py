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

from wcl.config.bounds import above
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses
from wcl.methods.moco import MoCo, MoCoSettings
from wcl.models.multiview import embed_views
from wcl.ops.tiled_losses import log_sum_over_all


@dataclass
class SimCLRv2Settings(MoCoSettings):
    """Settings of SimCLR v2."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the loss."""


class SimCLRv2(MoCo):
    """A view finds the key of the other view among the keys of the batch and of past ones."""

    Settings: ClassVar[type[Any]] = SimCLRv2Settings

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return embed_views(self.encoder, views)

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
