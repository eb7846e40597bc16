"""SimSiam: a predictor and a stop-gradient (Chen and He, 2020, arXiv 2011.10566).

A predictor p maps the projection z of each view to that of the other view, which receives no
gradient (Eq. 1–4):

    L = ½·D(p(z₁), stop(z₂)) + ½·D(p(z₂), stop(z₁)),  D(p, z) = −cos(p, z)

There are neither negatives nor a momentum encoder. Batch norm follows the last layer of the
projection head, and the hidden layer of the predictor is a bottleneck. The authors train
ResNet-50 with a head of three layers with 2,048 units, a predictor with 512, and SGD with a rate
of 0.05 at batch 256 (linear scaling) and weight decay 1e-4. They do not decay the rate of the
predictor; here it follows the schedule of the run. The loss is −1 at best, also in a collapse:
see `collapsed` and `rankme`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config.bounds import at_least
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.models.encoder import Encoder, projection_head
from wcl.models.multiview import embed_views


@dataclass
class SimSiamSettings:
    """Settings of SimSiam."""

    bottleneck: Annotated[int, at_least(1)] = 4
    """How many times narrower the hidden layer of the predictor is than the projection."""


class SimSiam(Method):
    """Each view predicts the projection of the other, which receives no gradient."""

    Settings: ClassVar[type[Any]] = SimSiamSettings
    supports_crops = False

    def __init__(self, encoder: Encoder, settings: SimSiamSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        dim = encoder.description.model.head_out_dim
        self.norm = nn.BatchNorm1d(dim, affine=False)
        self.predictor = projection_head(dim, max(1, dim // settings.bottleneck), dim, layers=2)

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        out = embed_views(self.encoder, views)
        z = self.norm(out["g"].flatten(0, 1))
        shape = out["g"].shape[:2]
        return out | {"z": z.unflatten(0, shape), "p": self.predictor(z).unflatten(0, shape)}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        cosine = F.cosine_similarity(out["p"], out["z"].detach().flip(0), dim=2)
        loss = -cosine.sum() / (2 * len(shard))
        return Losses(loss, {"simsiam": loss}, (out["g"][0], out["g"][1]))
