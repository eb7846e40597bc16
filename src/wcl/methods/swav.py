"""SwAV: swapped prediction of cluster assignments (Caron et al., 2020, arXiv 2006.09882).

A view's scores are the cosines of its projection z to P learned prototypes. The codes q of the
two full views are soft assignments to the prototypes that use all of them equally (`sinkhorn`,
over the whole batch), and every other view predicts them (Eq. 1–6):

    L = mean over full views s, other views t of −Σ_k q_s[k]·log softmax(scores_t/τ)[k]

Prototypes have length one after every step, and do not move in the first `freeze_epochs`. The
authors train with τ = 0.1, ε = 0.05, 3 iterations, 3,000 prototypes, 2 + 6 crops, and LARS with a
rate of 0.3 at batch 256 (linear scaling).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config.bounds import above, at_least
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views
from wcl.ops.sinkhorn import sinkhorn


@dataclass
class SwAVSettings:
    """Settings of SwAV."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the predictions."""
    prototypes: Annotated[int, at_least(2)] = 3000
    """Number P of prototypes."""
    epsilon: Annotated[float, above(0)] = 0.05
    """Smoothness ε of the assignments."""
    iterations: Annotated[int, at_least(1)] = 3
    """Iterations of the Sinkhorn algorithm."""
    freeze_epochs: Annotated[float, at_least(0)] = 1
    """Epochs at the start in which the prototypes do not move."""


class SwAV(Method):
    """Each view predicts the prototypes that the other views are assigned to."""

    Settings: ClassVar[type[Any]] = SwAVSettings

    steps: Tensor

    def __init__(self, encoder: Encoder, settings: SwAVSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        dim = encoder.description.model.head_out_dim
        self.prototypes = nn.Parameter(F.normalize(torch.randn(settings.prototypes, dim), dim=1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        out = embed_views(self.encoder, views)
        fixed = self.prototypes.detach()
        moving = self.steps >= self.settings.freeze_epochs * self.info.steps_per_epoch
        # A gradient of zero, not none: data-parallel training waits for every parameter's.
        prototypes = fixed + moving * (self.prototypes - fixed)
        return out | {"scores": F.normalize(out["g"], dim=2) @ prototypes.T}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        settings, scores = self.settings, out["scores"]
        everyone = shard.gather_embeddings(scores[0].detach(), scores[1].detach())
        codes = [
            shard.local(sinkhorn(one, settings.epsilon, settings.iterations)) for one in everyone
        ]
        log_p = F.log_softmax(scores / settings.temperature, dim=2)
        terms = [
            -(code * log_p[t]).sum()
            for s, code in enumerate(codes)
            for t in range(len(scores))
            if t != s
        ]
        loss = torch.stack(terms).sum() / (len(terms) * len(shard))
        used = torch.zeros_like(self.prototypes[:, 0]).index_fill(0, everyone[0].argmax(dim=1), 1)
        diagnostics = {"prototypes_used": used.mean()}
        return Losses(loss, {"swav": loss}, (out["g"][0], out["g"][1]), (), diagnostics)

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        self.prototypes.copy_(F.normalize(self.prototypes, dim=1))
        self.steps.add_(1)
