"""A pretraining method of your own: alignment and uniformity (Wang and Isola, 2020).

Run it from this folder, on one process or on several:

    wcl pretrain digits --method my_method:AlignUniform --loss.weight 0.5 --out runs/mine
    wcl pretrain digits --method my_method:AlignUniform --devices 2 --out runs/mine-2
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config.bounds import at_least
from wcl.distributed.sharding import BatchShard
from wcl.methods import Losses, Method


@dataclass
class AlignUniformSettings:
    """The group `loss` of the settings; docstrings are the help of --help."""

    weight: Annotated[float, at_least(0)] = 1.0
    """Weight of uniformity."""


class AlignUniform(Method):
    """Two views of an image are close; all images are spread over the sphere."""

    Settings: ClassVar[type[Any]] = AlignUniformSettings
    supports_crops = False

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        z = F.normalize(out["g"], dim=2)  # (2 views, local images, D)
        align = (z[0] - z[1]).square().sum() / len(shard)
        everyone = shard.gather(z[0])  # (all images, D), in the same order on any process
        distances = torch.cdist(z[0], everyone).square()
        # Each process adds up the rows of its local images; the sums of all processes are the loss.
        uniform = torch.exp(-2 * distances).sum() / len(shard) ** 2
        total = align + self.settings.weight * uniform
        return Losses(total, {"align": align, "uniform": uniform}, (z[0], z[1]))
