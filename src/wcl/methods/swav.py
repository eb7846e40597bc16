"""SwAV: swapped prediction of cluster assignments (Caron et al., 2020, arXiv 2006.09882).

A view's scores are the cosines of its projection z to P learned prototypes. The codes q of the
two full views are soft assignments to the prototypes that use all of them equally (`sinkhorn`,
over the whole batch), and every other view predicts them (Eq. 1–6):

    L = mean over full views s, other views t of −Σ_k q_s[k]·log softmax(scores_t/τ)[k]

Prototypes have length one after every step, and do not move in the first `freeze_epochs`. In small
batches the codes can hardly use all prototypes equally: the last `queue_size` projections of each
full view then take part in their assignment, once the queue is full and `queue_start` epochs are
over. The weak labels are the nearest prototypes.

The authors train with τ = 0.1, ε = 0.05, 3 iterations, 3,000 prototypes, 2 + 6 crops, and LARS with
a rate of 0.3 at batch 256 (linear scaling); at batch 256 with a queue of 3,840 from epoch 15 on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config.bounds import above, at_least, between
from wcl.distributed.sharding import BatchShard
from wcl.methods.method import Losses, Method, RunInfo
from wcl.methods.queue import Queue, checked_queue_size, random_directions
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views
from wcl.ops.sinkhorn import sinkhorn
from wcl.ops.weak_labels import first_of_same
from wcl.system.errors import InputError

_AUTHORS_PROTOTYPES = 3000


@dataclass
class SwAVSettings:
    """Settings of SwAV."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the predictions."""
    prototypes: Annotated[int, at_least(0)] = 0
    """Number P of prototypes; 0 for 3,000 or, if that is less, for a quarter of the images."""
    epsilon: Annotated[float, above(0)] = 0.05
    """Smoothness ε of the assignments."""
    iterations: Annotated[int, between(1, 1000)] = 3
    """Iterations of the Sinkhorn algorithm."""
    freeze_epochs: Annotated[float, at_least(0)] = 1
    """Epochs at the start in which the prototypes do not move."""
    queue_size: Annotated[int, at_least(0)] = 0
    """Past projections that take part in the assignment; 0 for none."""
    queue_start: Annotated[float, at_least(0)] = 15
    """Epochs before the queue is used."""


class SwAV(Method):
    """Each view predicts the prototypes that the other views are assigned to."""

    Settings: ClassVar[type[Any]] = SwAVSettings
    weak_labels_need_state = True

    steps: Tensor

    def __init__(self, encoder: Encoder, settings: SwAVSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        count = settings.prototypes or max(2, min(_AUTHORS_PROTOTYPES, info.images // 4))
        if not 2 <= count <= info.images:
            raise InputError(
                f"--loss.prototypes: must be between 2 and the {info.images} images, not {count}"
            )
        dim = encoder.description.model.head_out_dim
        self.prototypes = nn.Parameter(random_directions(count, dim))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.queue: Queue | None = None
        if settings.queue_size:
            size = checked_queue_size(settings.queue_size, settings.queue_size, info)
            self.queue = Queue(random_directions(2 * size, dim).unflatten(0, (size, 2)))
        self._new: Tensor | None = None

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
        codes = [shard.local(code) for code in self.codes(everyone)]
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
        if self.queue is not None:
            z = F.normalize(out["g"][:2].detach(), dim=2)
            self._new = torch.stack(shard.gather_embeddings(z[0], z[1]), dim=1)
        labels = tuple(first_of_same(one.argmax(dim=1)) for one in everyone)
        return Losses(loss, {"swav": loss}, (out["g"][0], out["g"][1]), labels, diagnostics)

    def codes(self, scores: Sequence[Tensor]) -> list[Tensor]:
        """Return (N, P) the codes of each full view, given its (N, P) scores."""
        settings, count = self.settings, len(scores[0])
        form = settings.epsilon, settings.iterations
        codes = [sinkhorn(one, *form) for one in scores]
        if self.queue is None:
            return codes
        started = self.steps >= settings.queue_start * self.info.steps_per_epoch
        past = (self.queue.rows @ self.prototypes.detach().T).unbind(dim=1)
        more = [sinkhorn(torch.cat(pair), *form) for pair in zip(scores, past, strict=True)]
        use = started & self.queue.is_full
        return [torch.where(use, b[:count], a) for a, b in zip(codes, more, strict=True)]

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        self.prototypes.copy_(F.normalize(self.prototypes, dim=1))
        self.steps.add_(1)
        if self.queue is not None and self._new is not None:
            self.queue.enqueue(self._new)

    def weak_labels(self, embeddings: dict[str, Tensor]) -> Tensor | None:
        scores = F.normalize(embeddings["g"], dim=1) @ self.prototypes.detach().T
        return first_of_same(scores.argmax(dim=1))
