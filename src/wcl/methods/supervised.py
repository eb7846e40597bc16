"""Supervised learning: cross-entropy with the true classes.

A linear classifier on the features h of both views, L = mean of −log softmax(W·h + b)[class]. It
has the network, the augmentation and the number of images per step of the other methods, so it
shows what labels are worth with the same budget. There is no projection head. The usual settings
for ResNet-50 are SGD with a rate of 0.1 at batch 256 (linear scaling), weight decay 1e-4 and 90
epochs with crops and flips only (He et al., 2016, arXiv 1512.03385).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views


@dataclass
class SupervisedSettings:
    """Supervised learning has no settings."""


class Supervised(Method):
    """A classifier of the true classes, trained together with the encoder."""

    Settings: ClassVar[type[Any]] = SupervisedSettings
    supports_crops = False
    needs_labels = True

    def __init__(self, encoder: Encoder, settings: SupervisedSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        assert info.labels is not None
        self.classifier = nn.Linear(encoder.feature_dim, int(info.labels.max()) + 1)

    @classmethod
    def heads(cls, settings: SupervisedSettings, crops: int) -> tuple[str, ...]:
        return ()

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        out = embed_views(self.encoder, views)
        return out | {"logits": self.classifier(out["h"])}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        assert self.info.labels is not None
        h, logits = out["h"], out["logits"]
        index = torch.from_numpy(shard.index)
        classes = shard.local(self.info.labels[index].to(h.device, non_blocking=True))
        loss = F.cross_entropy(logits.flatten(0, 1), classes.repeat(2), reduction="sum")
        loss = loss / (2 * len(shard))
        return Losses(loss, {"cross_entropy": loss}, (h[0], h[1]))
