"""MoCHi: its loss and gradient against a loop, and its draws."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.methods.mochi import MoCHi
from wcl.methods.moco import queue_nce


def mochi(**settings: Any) -> MoCHi:
    chosen = {"queue_size": 20, "hardest": 6, "mixtures": 5, "query_mixtures": 4}
    method = build("mochi", **{**chosen, "warmup_epochs": 0, **settings}).double()
    assert isinstance(method, MoCHi)
    return method


def by_loop(method: MoCHi, q: Tensor, k: Tensor) -> Tensor:
    """The loss with every synthetic negative written out and normalized."""
    settings = method.settings
    drawn = method.draw(torch.arange(len(q)), q.new_zeros(len(q), settings.hardest))
    losses = []
    for query, key, first, second, alpha, one, beta in zip(q, k, *drawn, strict=True):
        hard = sorted(method.queue.rows, key=lambda n: -float(query.detach() @ n))[
            : settings.hardest
        ]
        negatives = list(method.queue.rows)
        for i, j, share in zip(first, second, alpha, strict=True):
            negatives.append(F.normalize(share * hard[i] + (1 - share) * hard[j], dim=0))
        for j, share in zip(one, beta, strict=True):
            negatives.append(F.normalize(share * query.detach() + (1 - share) * hard[j], dim=0))
        logits = [query @ each / settings.temperature for each in (key, *negatives)]
        losses.append(-logits[0] + torch.stack(logits).exp().sum().log())
    return torch.stack(losses).mean()


def test_the_loss_and_its_gradient_are_their_definition() -> None:
    method = mochi()
    g, keys = normal(0, 1, 9, DIM).requires_grad_(), normal(1, 1, 9, DIM)
    loss = method.loss({"h": g, "g": g}, {"g": keys}, whole(9)).total
    expected = by_loop(method, F.normalize(g[0], dim=1), F.normalize(keys[0], dim=1))
    torch.testing.assert_close(loss, expected)
    (found,), (gradient,) = (torch.autograd.grad(each, g) for each in (loss, expected))
    torch.testing.assert_close(found, gradient)


@pytest.mark.parametrize("settings", [{"mixtures": 0, "query_mixtures": 0}, {"warmup_epochs": 1}])
def test_without_synthetic_negatives_it_is_moco(settings: dict[str, Any]) -> None:
    method, q, k = mochi(**settings), *(F.normalize(normal(n, 9, DIM), dim=1) for n in (0, 1))
    found = method.instance_losses(q, k, whole(9))
    torch.testing.assert_close(found, queue_nce(q, k, method.queue.rows, 0.2))


def test_synthetic_negatives_come_after_the_warm_up() -> None:
    """An epoch has four steps."""
    method, q, k = mochi(warmup_epochs=1), *(F.normalize(normal(n, 9, DIM), dim=1) for n in (0, 1))
    for step in range(6):
        plain = queue_nce(q, k, method.queue.rows, 0.2)
        harder = method.loss({"h": q[None], "g": q[None]}, {"g": k[None]}, whole(9)).total
        assert (float(harder) > float(plain.mean()) + 1e-6) == (step >= 4)
        method.after_step(0.5)


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_and_opposite_embeddings_have_a_finite_loss_and_gradient(sign: int) -> None:
    """Equal ones cannot be told apart, and a mixture of opposite ones may be zero."""
    method = mochi(hardest=50)  # more than the queue has
    g = torch.ones(1, 9, DIM, dtype=torch.float64).requires_grad_()
    method.queue.rows.copy_(sign * F.normalize(g.detach()[0, :1], dim=1))
    loss = method.loss({"h": g, "g": g}, {"g": g.detach()}, whole(9)).total
    (gradient,) = torch.autograd.grad(loss, g)
    assert loss.isfinite() and gradient.isfinite().all()
    if sign > 0:
        assert loss.item() == pytest.approx(math.log(1 + 20 + 5 + 4))


def test_draws_differ_by_step_and_image_and_are_uniform() -> None:
    method = mochi(mixtures=4000, query_mixtures=4000)
    hard = torch.zeros(3, 6)
    draws = method.draw(torch.tensor([0, 1, 0]), hard)
    for values in draws:
        assert torch.equal(values[0], values[2])
        assert not torch.equal(values[0], values[1])
    for indices in (draws[0], draws[1], draws[3]):
        counts = indices[0].bincount(minlength=6)
        assert len(counts) == 6 and (counts - 4000 / 6).abs().max() < 150
    for shares, top in ((draws[2], 1.0), (draws[4], 0.5)):
        assert float(shares.min()) >= 0 and float(shares.max()) <= top
        assert float(shares[0].mean()) == pytest.approx(top / 2, abs=0.02)
    method.steps.add_(1)
    later = method.draw(torch.tensor([0, 1, 0]), hard)
    assert not any(torch.equal(old, new) for old, new in zip(draws, later, strict=True))
