"""FNCancel: cancellation of false negatives (Huynh et al., 2020, arXiv 2011.11765).

SimCLR, except that views of other images that look like an image are not its negatives. Further
views of each image, its support set S(i), find them: the score of a view m of another image is the
largest (or mean) cosine of its projection to those of S(i), and the false negatives F(i) are the
`top_k` views of the largest score above `threshold`. With the 2N views of a batch, i' the other
view of the image of i and s the cosine, the loss of an anchor i is (Eq. 2 and 3)

    eliminate: −log exp(s_ii'/τ) / Σ_{k≠i, k∉F(i)} exp(s_ik/τ)
    attract:   −1/(1+|F(i)|) Σ_{p ∈ {i'} ∪ F(i)} log exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)

S(i) consists of the two full views and `support` further ones, which pass through the network
without a gradient: with 8, a step embeds ten views of each image instead of two. The defaults are
those of the authors' code: attraction, 8 support views, maximum, the top 10 above 0.7, τ = 0.1. It
trains ResNet-50 with a head of three layers and 128 outputs, LARS with a rate of 0.1·√batch, weight
decay 1e-4 and batch 4,096. It also has a momentum encoder with a memory of past views and
RandAugment, and the support views are anchors and keys, too; these are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from wcl.config.bounds import above, at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views, select_views
from wcl.ops.similar_views import contrast_with_similar, images_of, most_similar
from wcl.system.errors import InputError


@dataclass
class FNCancelSettings:
    """Settings of FNCancel."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the loss."""
    use: Literal["attract", "eliminate"] = "attract"
    """Whether false negatives become positives, or are left out."""
    support: Annotated[int, between(0, 64)] = 8
    """Views per image that only serve to find false negatives."""
    aggregate: Literal["max", "mean"] = "max"
    """How the cosines to the views of the support set are combined."""
    top_k: Annotated[int, at_least(1)] = 10
    """Largest number of false negatives of an image, counted in views."""
    threshold: Annotated[float, between(-1, 1)] = 0.7
    """Score that a false negative must exceed; −1 for none."""


class FNCancel(Method):
    """SimCLR whose most similar negatives become positives or are left out."""

    Settings: ClassVar[type[Any]] = FNCancelSettings
    supports_crops = False

    def __init__(self, encoder: Encoder, settings: FNCancelSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        if settings.top_k >= info.batch_size:
            raise InputError(
                f"--loss.top_k: {settings.top_k} false negatives are too many for a batch of "
                f"{info.batch_size} images; use at most {info.batch_size - 1}"
            )

    @classmethod
    def support_views(cls, settings: FNCancelSettings) -> int:
        return settings.support

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        support = self.settings.support
        if not support:
            return {}
        return {"g": embed_views(self.encoder, select_views(views, 2, 2 + support))["g"]}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        settings, z = self.settings, out["g"]
        z1, z2 = shard.gather_embeddings(z[0], z[1])
        queries = torch.cat([z.detach(), targets["g"]]) if targets else z.detach()
        similar = most_similar(
            queries,
            torch.cat([z1, z2]).detach(),
            shard.local(torch.arange(len(shard), device=z.device)),
            settings.top_k,
            settings.threshold,
            settings.aggregate,
        )
        loss = contrast_with_similar(
            z1, z2, similar.repeat(2, 1), settings.temperature, settings.use, shard.own
        )
        positives = images_of(shard.gather(similar), shard.image_index)
        return Losses(loss, {"fncancel": loss}, (z[0], z[1]), positives=positives)
