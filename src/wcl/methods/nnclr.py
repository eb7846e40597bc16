"""NNCLR: nearest neighbors as positives (Dwibedi et al., 2021, arXiv 2104.14548).

The projection z of a view, which batch norm follows, is replaced by the row of a queue Q of past
projections that is nearest to it, and the prediction p of the other view of the same image is its
positive among those of the batch (Eq. 3 and the paper's pseudocode; all of length one):

    L = ½ Σ_{(z, p) = (z¹, p²), (z², p¹)} −log exp(NN(z, Q)·p_i/τ) / Σ_k exp(NN(z, Q)·p_k/τ)

Gradient flows through the predictions only. After each step the projections of the first view
replace the oldest rows of the queue, which is random at the start. The dataset indices of its rows
are known, so the log shows how many positives are of the right class.

The authors train with τ = 0.1, 98,304 rows, a projection head of 3 layers (2,048 hidden units, 256
outputs), a predictor of 2 layers (4,096 hidden units; ours has `model.head_hidden_dim`), and LARS
with a rate of 0.3 at batch 256 (linear scaling), batch 4,096, weight decay 1e-6.
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
from wcl.methods.queue import Queue, checked_queue_size, random_directions
from wcl.models.encoder import Encoder, projection_head
from wcl.ops.tiled_losses import log_sum_over_all

_AUTHORS_QUEUE_SIZE = 98304


@dataclass
class NNCLRSettings:
    """Settings of NNCLR."""

    temperature: Annotated[float, above(0)] = 0.1
    """Temperature τ of the loss."""
    queue_size: Annotated[int, at_least(0)] = 0
    """Rows of the queue; 0 for 98,304 or, if that is less, for the number of images."""


class NNCLR(Method):
    """A view predicts the nearest neighbor of the other view among past images."""

    Settings: ClassVar[type[Any]] = NNCLRSettings
    supports_crops = False

    def __init__(self, encoder: Encoder, settings: NNCLRSettings, info: RunInfo) -> None:
        super().__init__(encoder, settings, info)
        model = encoder.description.model
        self.norm = nn.BatchNorm1d(model.head_out_dim)
        self.predictor = projection_head(
            model.head_out_dim, model.head_hidden_dim, model.head_out_dim, layers=2
        )
        default = min(_AUTHORS_QUEUE_SIZE, info.images)
        size = checked_queue_size(settings.queue_size, default, info)
        self.queue = Queue(random_directions(size, model.head_out_dim))
        self.queue_images = Queue(torch.full((size,), -1))
        self._new: tuple[Tensor, Tensor] | None = None

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        out = super().embed(views)
        z = self.norm(out["g"].flatten(0, 1))
        shape = out["g"].shape[:2]
        return out | {"z": z.unflatten(0, shape), "p": self.predictor(z).unflatten(0, shape)}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        temperature = self.settings.temperature
        z = F.normalize(out["z"].detach(), dim=2)
        p = shard.gather_embeddings(*F.normalize(out["p"], dim=2))
        nearest = [(each @ self.queue.rows.T).argmax(dim=1) for each in z]
        loss = out["p"].new_zeros(())
        for near, prediction in zip(nearest, reversed(p), strict=True):
            anchors = self.queue.rows[near] / temperature
            positive = (anchors * shard.local(prediction)).sum(dim=1)
            loss = loss + (log_sum_over_all(anchors, prediction) - positive).sum()
        loss = loss / (2 * len(shard))
        self._new = shard.gather(z[0]), shard.image_index
        positives = shard.gather(self.queue_images.rows[torch.stack(nearest, dim=1)])
        pair = out["z"][0], out["z"][1]
        return Losses(loss, {"nce": loss}, pair, positives=positives)

    def after_step(self, progress: float) -> None:
        assert self._new is not None
        self.queue.enqueue(self._new[0])
        self.queue_images.enqueue(self._new[1])
