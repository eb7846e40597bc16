"""One step of training: from the views of a batch to the gradient of its losses.

A batch that is larger than memory goes through the network in pieces, and the gradient is still
that of the losses of the whole batch: all pieces are embedded without keeping what a backward pass
needs, the gradient of the losses with respect to the embeddings is taken, and then every piece
passes a second time, and backward with its part of that gradient. (Gao et al., 2021, do so for
text.) Batch norms see one piece at a time, and move their statistics in the first pass alone.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from wcl.distributed.batch_norm import SynchronizedBatchNorm, statistics_kept
from wcl.distributed.sharding import BatchShard
from wcl.distributed.world import World
from wcl.methods import Losses, Method
from wcl.models.encoder import Embeddings
from wcl.models.multiview import embed_views, halves, join_images, of_images
from wcl.ops.randomness import RngState


class Step(NamedTuple):
    """What a step found; its gradient is in the parameters."""

    losses: Losses
    """The part of the losses that the images of this process make up."""
    first: Embeddings
    """Of the first views of this process's images."""
    second: Embeddings
    """Of the second."""
    gradient: Tensor
    """Length of the gradient, all parameters together (times the scale of 16-mixed precision)."""


class MultiViewModel(nn.Module):
    """A network that takes all views of a step at once: one forward for one backward."""

    def __init__(self, encoder: nn.Module, world: World) -> None:
        super().__init__()
        self.encoder = encoder
        self._world = world

    def forward(self, kinds: list[Tensor]) -> list[Embeddings]:
        # On GPUs the layers themselves are of the synchronized kind.
        several = self._world.size > 1 and not kinds[0].is_cuda
        with SynchronizedBatchNorm(self._world) if several else nullcontext():
            return embed_views(self.encoder, kinds)


def gradient_step(
    fabric: Fabric, model: Any, method: Method, kinds: list[Tensor], share: BatchShard, world: World
) -> Step:
    """Compute the losses of a step and add their gradient to that of the parameters.

    Args:
        fabric: the engine.
        model: an `AllViews` that the engine has set up.
        method: what is minimized.
        kinds: for each kind of view those of this process's images.
        share: these images among those of all processes, and the pieces that they go through in.
        world: the processes. Their gradients are averaged, their losses add up: hence its size.
    """
    if len(share.pieces) == 1:
        full, *small = model(kinds)
        losses, first, second = _losses(method, full, small, share)
        fabric.backward(losses.total * world.size)
        return Step(losses, first, second, _length(model))

    images = sum(len(rows) for rows in share.pieces)
    randomness = RngState(fabric.device)
    states, parts = [], []
    with torch.no_grad():
        for rows in share.pieces:
            states.append(randomness.state())
            parts.append(model(of_images(kinds, images, rows)))
    after = randomness.state()

    counts = [len(rows) for rows in share.pieces]
    leaves = [_leaves(embeddings) for embeddings in join_images(parts, counts)]
    losses, first, second = _losses(method, leaves[0], leaves[1:], share)
    projections = [e for embeddings in leaves for e in embeddings[1:] if e is not None]
    gradients = torch.autograd.grad(
        losses.total * world.size, projections, allow_unused=True, materialize_grads=True
    )
    for number, rows in enumerate(share.pieces):
        last = number == len(share.pieces) - 1
        with fabric.no_backward_sync(model, enabled=not last), statistics_kept(model):
            randomness.restore(states[number])
            again = [e for kind in model(of_images(kinds, images, rows)) for e in kind[1:]]
            flows = of_images(list(gradients), images, rows)
            # Its gradient with respect to the projections is what flows into them.
            stand_in = sum(
                (e * flow).sum()
                for e, flow in zip((e for e in again if e is not None), flows, strict=True)
            )
            fabric.backward(stand_in)
    randomness.restore(after)
    return Step(losses, first, second, _length(model))


def _length(model: Any) -> Tensor:
    length: Tensor = get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    return length


def _losses(
    method: Method, full: Embeddings, small: list[Embeddings], share: BatchShard
) -> tuple[Losses, Embeddings, Embeddings]:
    first, second = halves(full)
    return method(first, second, small[0] if small else None, share), first, second


def _leaves(embeddings: Embeddings) -> Embeddings:
    """The same with projections that gradients end in."""
    z, v = (e if e is None else e.requires_grad_() for e in embeddings[1:])
    return Embeddings(embeddings.h, z, v)
