"""InstDisc: every image is a class of its own (Wu et al., 2018, arXiv 1805.01978).

A memory bank has one unit vector v for each of the n images. With f the projection of an image's
view, the probability that it is image i is a softmax over the bank (Eq. 2), for which

    P(i|f) = exp(v_i·f/τ) / Z,    Z = Σ_j exp(v_j·f/τ),    L = −log P(i|f).

With more images than `negatives`, the loss is noise-contrastive estimation with m = `negatives`
entries j drawn uniformly from the bank, P_n = 1/n (Eq. 4–7):

    L = −log h(i, f) − Σ_j log(1 − h(j, f)),    h(i, f) = P(i|f) / (P(i|f) + m·P_n)

where Z is a constant, estimated in the first step (Eq. 8). After each step the entries of the batch
move by v ← normalize(m_b·v + (1 − m_b)·f). The bank is random at the start.

The loss needs one view of an image; the second is not used, and the health metrics compare the
first with the image's entry in the bank. The authors train with τ = 0.07, m = 4,096, m_b = 0.5, a
linear head of 128 outputs, and SGD with a rate of 0.03 at batch 256 and weight decay 1e-4 for 200
epochs. On CIFAR-10 they find the softmax over all images a little better (`negatives` 0); in short
runs it learns much faster, because Z is estimated from a random bank. Their proximal term (Eq. 10)
is left out, as in their code.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config.bounds import above, at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.methods.queue import random_directions
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views, select_views
from wcl.ops.randomness import device_bits
from wcl.ops.tiled_losses import log_sum_over_all


@dataclass
class InstDiscSettings:
    """Settings of InstDisc."""

    temperature: Annotated[float, above(0)] = 0.07
    """Temperature τ of the softmax."""
    negatives: Annotated[int, at_least(0)] = 4096
    """Number m of bank entries that each image is compared with; all of them if it is 0 or the
    bank is not larger."""
    bank_momentum: Annotated[float, between(0, 1)] = 0.5
    """Momentum m_b of the entries of the bank."""


class InstDisc(Method):
    """A view recognizes its image among the entries of a memory bank."""

    Settings: ClassVar[type[Any]] = InstDiscSettings
    supports_crops = False

    bank: Tensor
    log_z: Tensor
    seed: Tensor
    steps: Tensor

    def __init__(self, encoder: Encoder, settings: InstDiscSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        dim = encoder.description.model.head_out_dim
        self.register_buffer("bank", random_directions(info.images, dim))
        self.register_buffer("log_z", torch.zeros(()))
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._new: tuple[Tensor, Tensor, Tensor] | None = None

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return embed_views(self.encoder, select_views(views, 0, 1))

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        f, images = F.normalize(out["g"][0], dim=1), shard.image_index
        local = shard.local(images)
        v, log_z = self.bank[local], self.log_z
        positive = (f * v).sum(dim=1) / self.settings.temperature
        if 0 < self.settings.negatives < len(self.bank):
            negatives = self.negative_logits(f, local)
            sums = shard.gather(torch.logsumexp(negatives.detach(), dim=1))
            drawn = len(shard) * self.settings.negatives
            estimate = torch.logsumexp(sums, dim=0) + math.log(len(self.bank) / drawn)
            log_z = torch.where(self.steps > 0, log_z, estimate)
            losses = nce(positive - log_z, negatives - log_z, len(self.bank))
        else:
            losses = log_sum_over_all(f / self.settings.temperature, self.bank) - positive
        loss = losses.sum() / len(shard)
        self._new = images, shard.gather(f.detach()), log_z
        return Losses(loss, {"nce": loss}, (f, v))

    def negative_logits(self, f: Tensor, images: Tensor) -> Tensor:
        """Return (n, m) logits of these images' projections and random entries of the bank."""
        bits = device_bits(self.seed, self.steps, images, self.settings.negatives)
        entries = self.bank[bits % len(self.bank)]
        logits: Tensor = torch.einsum("nd,nmd->nm", f, entries) / self.settings.temperature
        return logits

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        assert self._new is not None
        images, f, log_z = self._new
        moved = torch.lerp(f.to(self.bank.dtype), self.bank[images], self.settings.bank_momentum)
        self.bank[images] = F.normalize(moved, dim=1)
        self.log_z.copy_(log_z)
        self.steps.add_(1)


def nce(positive: Tensor, negatives: Tensor, images: int) -> Tensor:
    """Compute the loss of noise-contrastive estimation with uniform noise over the images.

    Args:
        positive: (n,) log P of the images themselves.
        negatives: (n, m) log P of the noise.
        images: number n of images in the bank.

    Returns:
        (n,) losses.
    """
    noise = math.log(negatives.shape[1] / images)
    return -F.logsigmoid(positive - noise) - F.logsigmoid(noise - negatives).sum(dim=1)
