"""SupCon: contrast of the true classes (Khosla et al., 2020, arXiv 2004.11362).

All views of all images of a class attract each other and repel those of the other classes. With
the 2N views I of a batch and P(i) the other views of the class of i (Eq. 2, L_out):

    L = 1/2N Σ_{i∈I} −1/|P(i)| Σ_{p∈P(i)} log exp(z_i·z_p/τ) / Σ_{k≠i} exp(z_i·z_k/τ)

It needs labels: it is what weak labels could reach if they were always right. The authors train
ResNet-50 with a linear head of 128 outputs (in the paper with 2,048 hidden units), τ = 0.1, batch
6,144, 350 epochs and AutoAugment, with LARS or SGD. (Their Eq. 2 sums over the
anchors; we take the mean.)
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from wcl.config.bounds import above
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method
from wcl.ops.losses import supervised_contrastive


@dataclass
class SupConSettings:
    """Settings of SupCon."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the loss."""


class SupCon(Method):
    """The views of a class attract each other and repel all others."""

    Settings: ClassVar[type[Any]] = SupConSettings
    supports_crops = False
    needs_labels = True

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        assert self.info.labels is not None
        z = out["g"]
        z1, z2 = shard.gather_embeddings(z[0], z[1])
        classes = self.info.labels[torch.from_numpy(shard.index)].to(z.device, non_blocking=True)
        # The loss needs numbers below that of the rows, and there may be more classes than rows.
        labels = torch.searchsorted(classes.sort().values, classes)
        own = None if shard.own is None else torch.cat([shard.own, shard.own + len(shard)])
        loss = supervised_contrastive(
            torch.cat([z1, z2]), labels.repeat(2), self.settings.temperature, own=own
        )
        return Losses(loss, {"supcon": loss}, (z[0], z[1]), (labels, labels))
