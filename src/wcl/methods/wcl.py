"""WCL: instance discrimination and weakly supervised contrast (Zheng et al., 2021).

L = L_NCE + λ·L_cNCE + β·L_swap + γ·L_cswap, the c-terms with small crops. The weak labels of
L_swap are the connected components of the batch's 1-nearest-neighbor graph (Eq. 5–7). The paper's
ablation is a matter of settings: a weight of 0 leaves a term out, and with it a head that no
other term uses; `loss.heads shared` puts all terms on one head.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from wcl.config.bounds import above, at_least
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, weighted_sum
from wcl.ops.losses import crop_nce, crop_swap, nt_xent, swap
from wcl.ops.weak_labels import components, nearest_neighbors
from wcl.system.errors import InputError

Views = tuple[Tensor, Tensor, Tensor]  # the first view, the second, and the crops
_INSTANCE, _WEAK, _CROPS = {"nce", "cnce"}, {"swap", "cswap"}, {"cnce", "cswap"}


@dataclass
class WCLSettings:
    """Settings of WCL. The weights switch the terms on and off."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature of every loss."""
    nce: Annotated[float, at_least(0)] = 1.0
    """Weight of instance discrimination, L_NCE."""
    swap: Annotated[float, at_least(0)] = 0.5
    """β, the weight of the swapped supervised contrastive loss, L_swap."""
    cnce: Annotated[float, at_least(0)] = 1.0
    """λ, the weight of instance discrimination of the small crops, L_cNCE."""
    cswap: Annotated[float, at_least(0)] = 0.5
    """γ, the weight of the swapped loss of the small crops, L_cswap."""
    heads: Literal["two", "shared"] = "two"
    """Whether the swapped losses have a projection head of their own, as in the paper, or share
    the first."""
    positives: Literal["mean", "sum"] = "mean"
    """How an anchor's positives are combined: the authors' code averages, their Eq. 4 sums."""
    key_gradient: bool = True
    """Whether gradient flows through the keys of the swapped losses; in the authors' code it flows
    through those of the same process only."""
    swapped: bool = True
    """Whether each view learns from the weak labels of the other one, as in the paper, or from its
    own."""
    labels_from: Literal["v", "h"] = "v"
    """Where the weak labels are found: in the embeddings that learn from them, as in the paper, or
    in the features of the backbone."""

    def weights(self, crops: int) -> dict[str, float]:
        """Return the weights of the terms that are switched on."""
        terms = {name: getattr(self, name) for name in ("nce", "cnce", "swap", "cswap")}
        return {name: w for name, w in terms.items() if w and (crops or name not in _CROPS)}


class WCL(Method):
    """Weakly supervised contrastive learning: up to four losses on one or two heads."""

    Settings: ClassVar[type[Any]] = WCLSettings

    @classmethod
    def heads(cls, settings: WCLSettings, crops: int) -> tuple[str, ...]:
        weights = settings.weights(crops)
        if not weights:
            raise InputError("--loss.nce, --loss.swap …: all weights are 0; set one above 0")
        if settings.heads == "shared" or not _WEAK & weights.keys():
            return ("g",)
        return ("g", "phi") if _INSTANCE & weights.keys() else ("phi",)

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        weights = self.settings.weights(self.info.crops)
        views = {name: (rows[0], rows[1], rows[2:]) for name, rows in out.items()}
        parts: dict[str, Tensor] = {}
        labels: tuple[Tensor, ...] = ()
        if _INSTANCE & weights.keys():
            parts |= self._instance_losses(views["g"], weights, shard)
        if _WEAK & weights.keys():
            weak, labels = self._weak_losses(views, weights, shard)
            parts |= weak
        pair = views["g" if "g" in views else "phi"][:2]
        return Losses(weighted_sum(parts, weights), parts, pair, labels)

    def _instance_losses(
        self, z: Views, weights: dict[str, float], shard: BatchShard
    ) -> dict[str, Tensor]:
        z1, z2 = shard.gather_embeddings(*z[:2])
        temperature = self.settings.temperature
        parts = {}
        if "nce" in weights:
            parts["nce"] = nt_xent(z1, z2, temperature, shard.own)
        if "cnce" in weights:
            parts["cnce"] = crop_nce(z[2], z1, z2, temperature, shard.own)
        return parts

    def _weak_losses(
        self, views: dict[str, Views], weights: dict[str, float], shard: BatchShard
    ) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        settings = self.settings
        v = views[self._weak_head]
        v1, v2 = shard.gather_embeddings(*v[:2])
        w1, w2 = v1.detach(), v2.detach()
        if settings.labels_from == "h":
            h1, h2, _ = views["h"]
            w1, w2 = shard.gather_embeddings(h1.detach(), h2.detach())
        labels = self.batch_labels(w1, w2, shard)
        y1, y2 = labels if settings.swapped else labels[::-1]  # the losses swap them
        form = settings.temperature, settings.positives, settings.key_gradient, shard.own
        parts = {}
        if "swap" in weights:
            parts["swap"] = swap(v1, v2, y1, y2, *form)
        if "cswap" in weights:
            parts["cswap"] = crop_swap(v[2], v1, v2, y1, y2, *form)
        return parts, labels

    @property
    def _weak_head(self) -> str:
        return "phi" if "phi" in self.encoder.heads else "g"

    def batch_labels(self, w1: Tensor, w2: Tensor, shard: BatchShard) -> tuple[Tensor, ...]:
        """Find the weak labels of all images in each view from their embeddings (N, D).

        Every process finds the neighbors of its own images. (Not `wcl.weak_labels`: its check for
        NaN would make the host wait for the device in every step. A non-finite embedding makes
        the loss non-finite, which stops the run.)
        """
        if shard.own is None:
            return tuple(components(nearest_neighbors(w, w)) for w in (w1, w2))
        local = [nearest_neighbors(w[shard.own], w, shard.own) for w in (w1, w2)]
        return tuple(components(near) for near in shard.gather(torch.stack(local, dim=1)).T)

    def weak_labels(self, embeddings: dict[str, Tensor]) -> Tensor | None:
        if not _WEAK & self.settings.weights(self.info.crops).keys():
            return None
        w = embeddings["h" if self.settings.labels_from == "h" else self._weak_head]
        return components(nearest_neighbors(w, w))
