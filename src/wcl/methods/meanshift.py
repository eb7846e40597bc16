"""Mean shift: views move to the mean of their image's neighborhood, to adapt a pretrained encoder.

Let f_i be the feature of image i without augmentation by the weights that the run starts from, of
length one, and N(i) the k nearest other images in the whole set. The target of an image is fixed
before the first step, and every view of it learns to have that direction:

    t_i = normalize(f_i + λ/k · Σ_{j ∈ N(i)} f_j),    L = mean over views of 1 − cos(h, t_i)

The neighbors take the place of weak labels: a pretrained encoder finds them in features of plain
images and in the whole set, where far more of them are of the image's class than among the
augmented views of a batch. The mean over them removes what is peculiar to one image, and the
image's own feature keeps the encoder from forgetting what the mean lacks.

There is no projection head, which would be random at the start and could damage the features while
it learns, and there are no negatives: a target that does not move cannot collapse. Mean shift as a
way to learn from random weights, with targets that follow a moving average of the network, is due
to Koohpayegani et al. (2021, arXiv 2105.07269).
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config.bounds import PositiveCount, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.models.encoder import Encoder
from wcl.neighbors import FeatureBank
from wcl.system.errors import InputError

_ROWS_AT_A_TIME = 2**12


@dataclass
class MeanShiftSettings:
    """Settings of mean shift."""

    neighbors: PositiveCount = 10
    """k, the nearest images in the whole set that a target averages."""
    neighbor_weight: Annotated[float, between(0, 1000)] = 3.0
    """λ, the weight of the neighbors' mean; the image itself has a weight of 1."""


class MeanShift(Method):
    """Views learn the mean of their image and its neighbors, as the starting weights see them."""

    Settings: ClassVar[type[Any]] = MeanShiftSettings
    needs_features = True

    target: Tensor
    neighbors: Tensor

    def __init__(self, encoder: Encoder, settings: MeanShiftSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        if settings.neighbors >= info.images:
            raise InputError(
                f"--loss.neighbors: {info.images} images have at most {info.images - 1} neighbors "
                f"each, not {settings.neighbors}; set it lower"
            )
        # An image that cannot be read at the start has no target; a zero gives no gradient.
        target = torch.zeros(info.images, encoder.feature_dim, dtype=torch.float16)
        self.register_buffer("target", target)
        self.register_buffer("neighbors", torch.full((info.images, settings.neighbors), -1))

    @classmethod
    def heads(cls, settings: MeanShiftSettings, crops: int) -> tuple[str, ...]:
        return ()

    @torch.no_grad()
    def start(self, bank: FeatureBank) -> None:
        found = bank.search(self.settings.neighbors, device=self.target.device)
        features = bank.fetch(torch.arange(self.info.images))
        for rows, near in zip(
            found.rows.split(_ROWS_AT_A_TIME), found.neighbors.split(_ROWS_AT_A_TIME), strict=True
        ):
            mean = features[near].float().mean(dim=1)
            shifted = features[rows].float() + self.settings.neighbor_weight * mean
            self.target[rows] = F.normalize(shifted, dim=1).to(self.target)
            self.neighbors[rows, : near.shape[1]] = near.to(self.neighbors)

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        h, images = out["h"], shard.image_index
        target = self.target[shard.local(images)].to(h.dtype)
        loss = (1 - (F.normalize(h, dim=2) * target).sum(dim=2)).sum() / (len(h) * len(shard))
        return Losses(loss, {"shift": loss}, (h[0], h[1]), positives=self.neighbors[images])
