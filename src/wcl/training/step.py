"""One training step: from the views of a batch to the gradient of its losses.

A batch larger than memory passes through the network in micro-batches, and the gradient is still
that of the losses of the whole batch (Gao et al., 2021, arXiv 2101.06983): all micro-batches are
embedded without a graph, the gradient of the losses with respect to the embeddings is computed,
and then every micro-batch passes a second time, and backward with its part of that gradient. Batch
norm sees one micro-batch at a time and updates its statistics in the first pass only.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from wcl.distributed.batch_norm import SynchronizedBatchNorm, frozen_statistics
from wcl.distributed.sharding import BatchShard
from wcl.distributed.world import World
from wcl.methods import Losses, Method
from wcl.models.multiview import concat_images, select_images
from wcl.ops.randomness import RngState


class Step(NamedTuple):
    """The result of a step, whose gradient is in the parameters."""

    losses: Losses
    features: Tensor
    """(n, feature_dim) features of the first view of the local images."""
    gradient_norm: Tensor
    """Norm of the whole gradient (times the loss scale of 16-mixed precision)."""


class MultiViewModel(nn.Module):
    """The differentiable part of a method as one module, for the engine to wrap."""

    def __init__(self, method: Method, world: World) -> None:
        super().__init__()
        self.method = method
        self._world = world

    def forward(
        self, views: Sequence[Tensor], branch: Literal["embed", "targets"] = "embed"
    ) -> dict[str, Tensor]:
        # On GPUs the layers themselves are synchronized ones.
        by_mode = self._world.size > 1 and not views[0].is_cuda
        with SynchronizedBatchNorm(self._world) if by_mode else nullcontext():
            out: dict[str, Tensor] = getattr(self.method, branch)(views)
            return out


def gradient_step(
    fabric: Fabric,
    model: Any,
    method: Method,
    views: Sequence[Tensor],
    shard: BatchShard,
    world: World,
) -> Step:
    """Compute the losses of a step and add their gradient to that of the parameters.

    Args:
        fabric: the engine.
        model: a `MultiViewModel` of the method, set up by the engine.
        method: the method.
        views: the views of the local images, one (views, n, C, H, W) per specification.
        shard: the local images within the batch, and their micro-batches.
        world: the processes. Their gradients are averaged while their losses add up, so the loss
            is multiplied by their number.
    """
    if len(shard.micro_batches) > 1:
        return _micro_batched_step(fabric, model, method, views, shard, world)
    with torch.no_grad():
        targets = model(views, "targets")
    out = model(views)
    losses = method.loss(out, targets, shard)
    fabric.backward(losses.total * world.size)
    return Step(losses, out["h"][0].detach(), _gradient_norm(model))


def _micro_batched_step(
    fabric: Fabric,
    model: Any,
    method: Method,
    views: Sequence[Tensor],
    shard: BatchShard,
    world: World,
) -> Step:
    rng = RngState(fabric.device)
    states, parts = [], []
    with torch.no_grad():
        micro_views = [select_images(views, rows) for rows in shard.micro_batches]
        targets = concat_images([model(some, "targets") for some in micro_views])
        for some in micro_views:
            states.append(rng.state())
            parts.append(model(some))
    after = rng.state()

    out = {name: values.requires_grad_() for name, values in concat_images(parts).items()}
    losses = method.loss(out, targets, shard)
    grads = torch.autograd.grad(losses.total * world.size, list(out.values()), allow_unused=True)
    used = {name: grad for name, grad in zip(out, grads, strict=True) if grad is not None}
    for number, rows in enumerate(shard.micro_batches):
        last = number == len(shard.micro_batches) - 1
        with fabric.no_backward_sync(model, enabled=not last), frozen_statistics(model):
            rng.restore(states[number])
            again = model(micro_views[number])
            pairs = zip(used, select_images(list(used.values()), rows), strict=True)
            # The gradient of this sum with respect to the embeddings is `grads`.
            fabric.backward(sum((again[name] * grad).sum() for name, grad in pairs))
    rng.restore(after)
    return Step(losses, out["h"][0].detach(), _gradient_norm(model))


def _gradient_norm(model: Any) -> Tensor:
    norm: Tensor = get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    return norm
