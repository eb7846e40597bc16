"""SimCLR: instance discrimination (Chen et al., 2020, arXiv 2002.05709).

L = L_NCE + λ·L_cNCE, where L_NCE is the NT-Xent loss of the two full views (Eq. 1 of the paper of
WCL) and L_cNCE that of the small crops against the full views, if there are crops.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Tensor

from wcl.config.bounds import above, at_least
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, weighted_sum
from wcl.ops.losses import crop_nce, nt_xent


@dataclass
class SimCLRSettings:
    """Settings of SimCLR."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature of the losses."""
    cnce: Annotated[float, at_least(0)] = 1.0
    """λ, the weight of the loss of the small crops."""


class SimCLR(Method):
    """Two views of an image attract each other and repel all other images of the batch."""

    Settings: ClassVar[type[Any]] = SimCLRSettings

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        temperature, z = self.settings.temperature, out["g"]
        z1, z2 = shard.gather_embeddings(z[0], z[1])
        parts = {"nce": nt_xent(z1, z2, temperature, shard.own)}
        if self.info.crops and self.settings.cnce:
            parts["cnce"] = crop_nce(z[2:], z1, z2, temperature, shard.own)
        weights = {"nce": 1.0, "cnce": self.settings.cnce}
        return Losses(weighted_sum(parts, weights), parts, (z[0], z[1]))
