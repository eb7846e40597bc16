"""AdpCLR: the nearest views become positives (Zhang et al., 2020, OpenReview aLIbnLY9NtH).

"Self-supervised representation learning via adaptive hard-positive mining". SimCLR at first; after
the share `warmup` of the run, each of the 2N views i of a batch also attracts the K views of other
images that are nearest to it by the cosine s of their projections, F(i). With i' the other view of
its image, the loss of an anchor i is

    −1/(1+K) Σ_{p ∈ {i'} ∪ F(i)} log exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)

Before, F(i) is empty, and this is NT-Xent. The nearest views of an untrained network need not be
of one class, hence the warm-up. The authors' abstract is all that we found (100 epochs after those
of SimCLR), neither their code nor K: we take the form of SupCon's loss, which they aim at, and the
defaults of `k` and `warmup` are ours.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from wcl.config.bounds import above, at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.models.encoder import Encoder
from wcl.ops.similar_views import contrast_with_similar, images_of, most_similar
from wcl.system.errors import InputError


@dataclass
class AdpCLRSettings:
    """Settings of AdpCLR."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the loss."""
    k: Annotated[int, at_least(1)] = 5
    """Number K of nearest views that are positives."""
    warmup: Annotated[float, between(0, 1)] = 0.5
    """Share of the run that is SimCLR."""


class AdpCLR(Method):
    """SimCLR at first, then with the nearest views of other images as further positives."""

    Settings: ClassVar[type[Any]] = AdpCLRSettings
    supports_crops = False

    is_warm: Tensor

    def __init__(self, encoder: Encoder, settings: AdpCLRSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        if settings.k >= info.batch_size:
            raise InputError(
                f"--loss.k: {settings.k} positives are too many for a batch of {info.batch_size} "
                f"images; use at most {info.batch_size - 1}"
            )
        self.register_buffer("is_warm", torch.tensor(settings.warmup == 0))

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        settings, z = self.settings, out["g"]
        z1, z2 = shard.gather_embeddings(z[0], z[1])
        queries = z.detach().flatten(0, 1)[None]
        images = shard.local(torch.arange(len(shard), device=z.device)).repeat(2)
        nearest = most_similar(queries, torch.cat([z1, z2]).detach(), images, settings.k)
        similar = torch.where(self.is_warm, nearest, -1)
        loss = contrast_with_similar(z1, z2, similar, settings.temperature, own=shard.own)
        of_both_views = similar.view(2, z.shape[1], settings.k).transpose(0, 1).flatten(1)
        positives = images_of(shard.gather(of_both_views), shard.image_index)
        return Losses(loss, {"adpclr": loss}, (z[0], z[1]), positives=positives)

    def after_step(self, progress: float) -> None:
        self.is_warm.fill_(progress >= self.settings.warmup)
