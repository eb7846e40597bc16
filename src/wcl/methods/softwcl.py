"""Soft WCL: instance discrimination, and weak labels that are shares instead of groups.

The weak labels of WCL are decisions: two images of a batch belong to one group or they do not.
While the encoder is poor, most of these decisions are wrong. Here the weak label of an image is a
distribution over past images: how similar a teacher, a moving average of the network, finds the
image *without augmentation* to each of them. All views of the image learn to predict it. With t the
teacher's embedding by φ of the plain image, q_j those of past images in a queue, v the embedding of
a view by φ, all of length one, and without the rows of the image itself:

    p_j = softmax_j(t·q_j/τ'),  L_soft = mean over views of −Σ_j p_j log softmax_j(v·q_j/τ)
    L = L_NCE + λ·L_cNCE + β·L_soft

τ' < τ makes the distribution sharper than the prediction. These weak labels differ from those of
WCL in three ways: plain images are better judges than augmented views, a queue holds more
candidates than a batch, and a pair counts as much as the teacher trusts it. The loss L_soft is that
of ReSSL (Zheng et al., 2021, arXiv 2107.09282), whose teacher sees a weak augmentation.

The log has `agreement`, the share of full views whose nearest past image is among the five that the
teacher finds nearest to the plain image. It needs no labels and rises with the share of such images
that are of the same class, `pair_precision`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import AugmentConfig
from wcl.config.bounds import above, at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo, weighted_sum
from wcl.methods.momentum import ema_update, frozen_copy
from wcl.methods.queue import Queue, negatives_queue_size, random_directions
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views, select_views
from wcl.ops.losses import crop_nce, nt_xent

_LARGEST_QUEUE = 4096
_NEAREST = 5  # images with the largest shares, whose classes are logged


@dataclass
class SoftWCLSettings:
    """Settings of soft WCL."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the losses."""
    teacher_temperature: Annotated[float, above(0)] = 0.04
    """Temperature τ' of the weak labels."""
    cnce: Annotated[float, at_least(0)] = 1.0
    """λ, the weight of instance discrimination of the small crops, L_cNCE."""
    soft: Annotated[float, at_least(0)] = 1.0
    """β, the weight of the prediction of weak labels by all views, small crops among them."""
    momentum: Annotated[float, between(0, 1)] = 0.99
    """Momentum of the teacher."""
    queue_size: Annotated[int, at_least(0)] = 0
    """Images in the queue; 0 for 4,096 or, if that is less, for a quarter of the images."""


class SoftWCL(Method):
    """Views predict how similar a teacher finds their plain image to past images."""

    Settings: ClassVar[type[Any]] = SoftWCLSettings

    def __init__(self, encoder: Encoder, settings: SoftWCLSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        self.teacher = frozen_copy(encoder)
        size = negatives_queue_size(settings.queue_size, _LARGEST_QUEUE, info)
        self.queue = Queue(random_directions(size, encoder.description.model.head_out_dim))
        self.queue_images = Queue(torch.full((size,), -1))
        self._new: tuple[Tensor, Tensor] | None = None

    @classmethod
    def heads(cls, settings: SoftWCLSettings, crops: int) -> tuple[str, ...]:
        return ("g", "phi")

    @classmethod
    def support_views(cls, settings: SoftWCLSettings) -> int:
        return 1

    @classmethod
    def support_augmentation(cls, settings: Any, augment: AugmentConfig) -> AugmentConfig:
        return without_augmentation(augment)

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"phi": embed_views(self.teacher, select_views(views, 2, 3))["phi"]}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        settings, z = self.settings, out["g"]
        z1, z2 = shard.gather_embeddings(z[0], z[1])
        parts = {"nce": nt_xent(z1, z2, settings.temperature, shard.own)}
        if self.info.crops and settings.cnce:
            parts["cnce"] = crop_nce(z[2:], z1, z2, settings.temperature, shard.own)
        t = F.normalize(targets["phi"][0], dim=1)
        itself = shard.local(shard.image_index)[:, None] == self.queue_images.rows
        shares = self.shares(t, itself, shard)
        v = F.normalize(out["phi"], dim=2)
        predicted = log_shares(v, self.queue.rows, itself, settings.temperature)
        parts["soft"] = self.weak_loss(shares, predicted).sum() / (len(v) * len(shard))
        self._new = shard.gather(t), shard.image_index
        nearest = shares.topk(min(_NEAREST, shares.shape[1]), dim=1).indices
        found = (predicted[:2].argmax(dim=2)[..., None] == nearest).any(dim=2)
        weights = {"nce": 1.0, "cnce": settings.cnce, "soft": settings.soft}
        return Losses(
            weighted_sum(parts, weights),
            parts,
            (z[0], z[1]),
            diagnostics={"agreement": shard.gather(found.to(t.dtype).mean(dim=0)).mean()},
            positives=shard.gather(self.queue_images.rows[nearest]),
        )

    def shares(self, t: Tensor, itself: Tensor, shard: BatchShard) -> Tensor:
        """Return (n, K) the weak labels of the local images."""
        return weak_shares(t, self.queue.rows, itself, self.settings.teacher_temperature)

    def weak_loss(self, shares: Tensor, predicted: Tensor) -> Tensor:
        """Compute (views, n) losses from shares (n, K) and logarithms of shares (views, n, K)."""
        return -(shares * predicted).sum(dim=2)

    def after_step(self, progress: float) -> None:
        ema_update(self.teacher, self.encoder, self.settings.momentum)
        assert self._new is not None
        self.queue.enqueue(self._new[0])
        self.queue_images.enqueue(self._new[1])


def weak_shares(t: Tensor, queue: Tensor, itself: Tensor, temperature: float) -> Tensor:
    """Compute the weak labels: (n, D) and (K, D) of length one → (n, K), rows add up to 1.

    Args:
        t: the teacher's embeddings of plain images.
        queue: those of past images.
        itself: (n, K) which rows of the queue are of the image itself, and get no share.
        temperature: τ'.
    """
    return log_shares(t, queue, itself, temperature).exp()


def log_shares(v: Tensor, queue: Tensor, itself: Tensor, temperature: float) -> Tensor:
    """Compute the logarithm of the shares that embeddings (…, n, D) give to a queue: (…, n, K)."""
    cosines = v @ queue.to(v.dtype).T
    logits = cosines.to(torch.promote_types(cosines.dtype, torch.float32)) / temperature
    # Not −∞, which times a share of 0 would be NaN.
    return logits.masked_fill(itself, -1e4).log_softmax(dim=-1)


def without_augmentation(augment: AugmentConfig) -> AugmentConfig:
    """Return the augmentation that shows the center of an image as it is, normalized as before."""
    return AugmentConfig(
        scale=(1, 1),
        ratio=(1, 1),
        flip=0,
        jitter=0,
        grayscale=0,
        blur=0,
        mean=augment.mean,
        std=augment.std,
    )
