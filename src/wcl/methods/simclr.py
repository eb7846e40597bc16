"""SimCLR: instance discrimination alone (Chen et al., 2020), of small crops too."""

from torch import Tensor

from wcl.config import LossConfig
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, by_crop, gather_embeddings
from wcl.models.encoder import Embeddings
from wcl.ops.losses import crop_nce, nt_xent
from wcl.system.errors import InputError


class SimCLR(Method):
    """L = L_NCE + λ·L_cNCE, the latter with crops."""

    terms = ("nce", "cnce")

    def __init__(self, config: LossConfig, crops: bool = False) -> None:
        super().__init__(config, crops)
        if "nce" not in self.weights:
            raise InputError("--loss.nce: SimCLR is that loss, so it cannot be left out")

    @property
    def heads(self) -> tuple[str, ...]:
        return ("g",)

    def __call__(
        self,
        first: Embeddings,
        second: Embeddings,
        crops: Embeddings | None = None,
        share: BatchShard | None = None,
    ) -> Losses:
        (z1, z2), own = gather_embeddings(share, first.z, second.z)
        temperature = self.config.temperature
        parts: dict[str, Tensor] = {"nce": nt_xent(z1, z2, temperature, own)}
        if "cnce" in self.weights:
            assert crops is not None and crops.z is not None
            parts["cnce"] = crop_nce(by_crop(crops.z, len(first.h)), z1, z2, temperature, own)
        return Losses(self.weighted(parts), parts)
