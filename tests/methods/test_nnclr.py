"""NNCLR: its loss and gradient against a loop, its queue, and its positives."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.methods.nnclr import NNCLR


def nnclr() -> NNCLR:
    method = build("nnclr", queue_size=20).double()
    assert isinstance(method, NNCLR)
    return method


def nearest(z: Tensor, queue: Tensor) -> int:
    return min(
        range(len(queue)), key=lambda row: float((F.normalize(z, dim=0) - queue[row]).norm())
    )


def by_loop(g: Tensor, p: Tensor, queue: Tensor) -> Tensor:
    terms = []
    for view in (0, 1):
        predictions = [F.normalize(each, dim=0) for each in p[1 - view]]
        for i, z in enumerate(g[view]):
            neighbor = queue[nearest(z, queue)]
            logits = torch.stack([neighbor @ each / 0.1 for each in predictions])
            terms.append(-torch.log_softmax(logits, dim=0)[i])
    return torch.stack(terms).mean()


def test_the_loss_and_its_gradient_are_their_definition() -> None:
    method = nnclr()
    g, p = normal(0, 2, 9, DIM).requires_grad_(), normal(1, 2, 9, DIM).requires_grad_()
    loss = method.loss({"h": g, "z": g, "p": p}, {}, whole(9)).total
    expected = by_loop(g.detach(), p, method.queue.rows)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, p)[0] for each in (loss, expected)))
    (through_z,) = torch.autograd.grad(
        method.loss({"h": g, "z": g, "p": p}, {}, whole(9)).total, g, allow_unused=True
    )
    assert through_z is None


def test_positives_are_the_images_of_the_nearest_rows() -> None:
    """None while the queue is random, then images of earlier steps."""
    method = nnclr()
    g = normal(0, 2, 9, DIM)
    out = {"h": g, "z": g, "p": g}
    first = method.loss(out, {}, whole(9)).positives
    assert first is not None and first.tolist() == [[-1, -1]] * 9
    method.after_step(0.5)
    torch.testing.assert_close(method.queue.rows[:9], F.normalize(g[0], dim=1))
    assert method.queue_images.rows.tolist() == [*range(9), *[-1] * 11]
    found = method.loss(out, {}, whole(9)).positives
    assert found is not None
    images, rows = method.queue_images.rows, method.queue.rows
    assert found.tolist() == [
        [int(images[nearest(z, rows)]) for z in pair] for pair in g.unbind(dim=1)
    ]
    assert found[:, 0].tolist() == list(range(9))  # the very same projections


def test_equal_embeddings_give_the_log_of_the_batch() -> None:
    ones = torch.ones(2, 9, DIM, dtype=torch.float64)
    loss = nnclr().loss({"h": ones, "z": ones, "p": ones}, {}, whole(9)).total
    assert float(loss) == pytest.approx(math.log(9))


def test_gradient_reaches_encoder_and_predictor() -> None:
    method = nnclr()
    method.loss(method.embed([normal(0, 2, 8, 3, 8, 8)]), {}, whole(8)).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())
