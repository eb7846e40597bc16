"""MoCHi: MoCo v2 with mixed hard negatives (Kalantidis et al., 2020, arXiv 2010.01028).

For each query q, of length one, the `hardest` keys of the queue are those with the highest q·n.
Two kinds of synthetic negatives join the keys of the queue in the denominator of MoCo's loss:

    h_k  = normalize(α·n_i + (1 − α)·n_j), α uniform in (0, 1), `mixtures` of them (Eq. 3)
    h'_k = normalize(β·q + (1 − β)·n_j), β uniform in (0, 0.5), `query_mixtures` of them (Eq. 4)

where n_i and n_j are drawn at random from the hardest keys. Synthetic negatives are constants: no
gradient flows through the q inside h'_k. None are made in the first `warmup_epochs`.

The authors' best settings for transfer are 1,024 hardest keys, 1,024 mixtures and 128 with the
query; they warm up for 15 epochs on ImageNet-1k and for 10 on ImageNet-100, otherwise as MoCo v2.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from wcl.config.bounds import at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import RunInfo
from wcl.methods.moco import MoCo, MoCoSettings
from wcl.models.encoder import Encoder
from wcl.ops.randomness import device_bits

_TINY = 1e-12  # squared length of a mixture of opposite vectors


@dataclass
class MoCHiSettings(MoCoSettings):
    """Settings of MoCHi."""

    hardest: Annotated[int, at_least(1)] = 1024
    """Number N of hardest keys that are mixed, if the queue has that many."""
    mixtures: Annotated[int, between(0, 65536)] = 1024
    """Number s of mixtures of two hard keys for each query."""
    query_mixtures: Annotated[int, between(0, 65536)] = 128
    """Number s' of mixtures of the query and a hard key for each query."""
    warmup_epochs: Annotated[float, at_least(0)] = 10
    """Epochs at the start without synthetic negatives."""


class MoCHi(MoCo):
    """A query also repels mixtures of its hardest negatives."""

    Settings: ClassVar[type[Any]] = MoCHiSettings

    seed: Tensor
    steps: Tensor

    def __init__(self, encoder: Encoder, settings: MoCHiSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def instance_losses(self, q: Tensor, k: Tensor, shard: BatchShard) -> Tensor:
        settings, keys = self.settings, self.queue.rows
        dots = q @ keys.T
        hard, places = dots.topk(min(settings.hardest, len(keys)), dim=1)
        first, second, alpha, key, beta = self.draw(shard.local(shard.image_index), hard)
        with torch.no_grad():
            n_i, n_j = (keys[places.gather(1, each)] for each in (first, second))
            pair_length = mixture_length(alpha, (n_i * n_j).sum(dim=2))
            query_length = mixture_length(beta, hard.gather(1, key))
        # q·h, with the q inside h' and the lengths constant.
        pairs = alpha * hard.gather(1, first) + (1 - alpha) * hard.gather(1, second)
        itself = (q * q.detach()).sum(dim=1, keepdim=True)
        with_query = beta * itself + (1 - beta) * hard.gather(1, key)
        synthetic = torch.cat([pairs / pair_length, with_query / query_length], dim=1)
        warming_up = self.steps < settings.warmup_epochs * self.info.steps_per_epoch
        synthetic = synthetic.masked_fill(warming_up, -torch.inf)
        positive = (q * k).sum(dim=1, keepdim=True)
        logits: Tensor = torch.cat([positive, dots, synthetic], dim=1) / settings.temperature
        return torch.logsumexp(logits, dim=1) - logits[:, 0]

    def draw(self, images: Tensor, hard: Tensor) -> tuple[Tensor, ...]:
        """Draw what to mix for these images in this step.

        Args:
            images: (n,) dataset indices.
            hard: (n, N) of the hard keys of each.

        Returns:
            (n, s) two hard keys and the share α of the first; (n, s') a hard key and the share β of
            the query.
        """
        s, s_query = self.settings.mixtures, self.settings.query_mixtures
        bits = device_bits(self.seed, self.steps, images, 3 * s + 2 * s_query)
        first, second, alpha, key, beta = bits.split([s, s, s, s_query, s_query], dim=1)
        first, second, key = (each % hard.shape[1] for each in (first, second, key))
        alpha, beta = ((each.float() * 2.0**-63).to(hard.dtype) for each in (alpha, beta))
        return first, second, alpha, key, beta / 2

    def after_step(self, progress: float) -> None:
        super().after_step(progress)
        self.steps.add_(1)


def mixture_length(share: Tensor, cosine: Tensor) -> Tensor:
    """Return the length of share·a + (1 − share)·b for unit vectors with this cosine."""
    squared = share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * cosine
    return squared.clamp(min=_TINY).sqrt()
