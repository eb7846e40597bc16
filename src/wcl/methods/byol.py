"""BYOL: predicting a moving average of oneself (Grill et al., 2020, arXiv 2006.07733).

A predictor p on the online network maps the projection of one view to that of the other view by
the target network, whose weights are a moving average of the online ones (Eq. 1–3):

    L = Σ_views ‖p(g(h₁))/‖·‖ − t(h₂)/‖·‖‖² = Σ_views 2 − 2·cos(p, t)

There are no negatives. The momentum rises from `momentum` to 1 along a cosine. The two views
differ in augmentation: the first is always blurred and never solarized, the second is blurred
with probability 0.1 and solarized with 0.2. The authors train ResNet-50 with 4,096 hidden units
and 256 outputs and LARS at batch 4,096 for 1,000 epochs, with a rate of 0.2 at batch 256 (linear
scaling), weight decay 1.5e-6 and momentum 0.996; for 300 epochs 0.3, 1e-6 and 0.99. Both
views pass through each network together, so batch norm sees them together.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import AugmentConfig
from wcl.config.bounds import between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.methods.momentum import ema_update, frozen_copy
from wcl.models.encoder import Encoder, projection_head
from wcl.models.multiview import embed_views


@dataclass
class BYOLSettings:
    """Settings of BYOL."""

    momentum: Annotated[float, between(0, 1)] = 0.99
    """Momentum of the target network at the start; it rises to 1."""
    blur: Annotated[tuple[float, float], between(0, 1)] = (1.0, 0.1)
    """Probability of a blur in the first and in the second view; overrides augment.blur."""
    solarize: Annotated[tuple[float, float], between(0, 1)] = (0.0, 0.2)
    """Probability of solarizing the first and the second view; overrides augment.solarize."""


class BYOL(Method):
    """The online network predicts the target network's projection of the other view."""

    Settings: ClassVar[type[Any]] = BYOLSettings
    supports_crops = False

    def __init__(self, encoder: Encoder, settings: BYOLSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        model = encoder.description.model
        self.predictor = projection_head(
            model.head_out_dim, model.head_hidden_dim, model.head_out_dim, layers=2
        )
        self.teacher = frozen_copy(encoder)

    @classmethod
    def augmentations(
        cls, settings: BYOLSettings, augment: AugmentConfig
    ) -> tuple[AugmentConfig, AugmentConfig]:
        first, second = (
            dataclasses.replace(augment, blur=blur, solarize=solarize)
            for blur, solarize in zip(settings.blur, settings.solarize, strict=True)
        )
        return first, second

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        out = embed_views(self.encoder, views)
        shape = out["g"].shape[:2]
        return out | {"p": self.predictor(out["g"].flatten(0, 1)).unflatten(0, shape)}

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"g": embed_views(self.teacher, views)["g"]}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        cosine = F.cosine_similarity(out["p"], targets["g"].flip(0), dim=2)
        loss = (2 - 2 * cosine).sum() / len(shard)
        return Losses(loss, {"byol": loss}, (out["g"][0], out["g"][1]))

    def after_step(self, progress: float) -> None:
        start = self.settings.momentum
        momentum = 1 - (1 - start) * (math.cos(math.pi * progress) + 1) / 2
        ema_update(self.teacher, self.encoder, momentum)
