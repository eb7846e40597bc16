"""WCL: instance discrimination and weakly supervised contrast (Zheng et al., 2021).

L = L_NCE + λ·L_cNCE + β·L_swap + γ·L_cswap, the c-terms with small crops. The paper's ablation is
settings: a weight of 0 leaves a term out and with it a head that has no other, and
`loss.heads shared` puts all terms on one head.
"""

import torch
from torch import Tensor

from wcl.config import LossConfig
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, by_crop, gather_embeddings
from wcl.models.encoder import Embeddings
from wcl.ops.losses import crop_nce, crop_swap, nt_xent, swap
from wcl.ops.weak_labels import components, nearest_neighbors
from wcl.system.errors import InputError


class WCL(Method):
    """Up to four losses, by default those of instances and those of weak labels on a head each."""

    terms = ("nce", "swap", "cnce", "cswap")

    def __init__(self, config: LossConfig, crops: bool = False) -> None:
        super().__init__(config, crops)
        if not self.weights:
            raise InputError("loss.nce, loss.swap and so on are all 0: nothing would be learned")
        self._instance = [name for name in ("nce", "cnce") if name in self.weights]
        self._weak = [name for name in ("swap", "cswap") if name in self.weights]

    @property
    def heads(self) -> tuple[str, ...]:
        if self.config.heads == "shared" or not self._weak:
            return ("g",)
        return ("g", "phi") if self._instance else ("phi",)

    def __call__(
        self,
        first: Embeddings,
        second: Embeddings,
        crops: Embeddings | None = None,
        share: BatchShard | None = None,
    ) -> Losses:
        parts = self._instance_losses(first, second, crops, share) if self._instance else {}
        labels: tuple[Tensor, ...] = ()
        if self._weak:
            weak, labels = self._weak_losses(first, second, crops, share)
            parts |= weak
        return Losses(self.weighted(parts), parts, labels)

    def _instance_losses(
        self,
        first: Embeddings,
        second: Embeddings,
        crops: Embeddings | None,
        share: BatchShard | None,
    ) -> dict[str, Tensor]:
        (z1, z2), own = gather_embeddings(share, first.z, second.z)
        temperature = self.config.temperature
        parts = {}
        if "nce" in self.weights:
            parts["nce"] = nt_xent(z1, z2, temperature, own)
        if "cnce" in self.weights:
            assert crops is not None and crops.z is not None
            parts["cnce"] = crop_nce(by_crop(crops.z, len(first.h)), z1, z2, temperature, own)
        return parts

    def _weak_losses(
        self,
        first: Embeddings,
        second: Embeddings,
        crops: Embeddings | None,
        share: BatchShard | None,
    ) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        config = self.config
        shared = config.heads == "shared"
        (v1, v2), own = gather_embeddings(
            share, *(view.z if shared else view.v for view in (first, second))
        )
        w1, w2 = v1.detach(), v2.detach()
        if config.labels_from == "h":
            (w1, w2), _ = gather_embeddings(share, first.h.detach(), second.h.detach())
        labels = self.weak_labels(w1, w2, share)
        y1, y2 = labels if config.swapped else labels[::-1]  # the losses swap them
        form = config.temperature, config.positives, config.key_gradient, own
        parts = {}
        if "swap" in self.weights:
            parts["swap"] = swap(v1, v2, y1, y2, *form)
        if "cswap" in self.weights:
            assert crops is not None
            small = crops.z if shared else crops.v
            assert small is not None
            parts["cswap"] = crop_swap(by_crop(small, len(first.h)), v1, v2, y1, y2, *form)
        return parts, labels

    def weak_labels(self, v1: Tensor, v2: Tensor, share: BatchShard | None) -> tuple[Tensor, ...]:
        """Weak labels of all images in each view; every process finds the neighbors of its own.

        Not `wcl.weak_labels`: its check for NaN would make the host wait for the device in every
        step. A non-finite embedding makes the loss non-finite, which stops the run.
        """
        if share is None or share.own is None:
            return tuple(components(nearest_neighbors(v, v)) for v in (v1, v2))
        own = [nearest_neighbors(v[share.own], v, share.own) for v in (v1, v2)]
        return tuple(components(near) for near in share.gather(torch.stack(own, dim=1)).T)
