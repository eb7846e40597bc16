"""BYOL: its loss against a loop, its momentum schedule, and its asymmetric views."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.config import AugmentConfig
from wcl.methods.byol import BYOL, BYOLSettings


def byol(**settings: Any) -> BYOL:
    method = build("byol", **settings).double()
    assert isinstance(method, BYOL)
    return method


def by_loop(p: Tensor, t: Tensor) -> float:
    """Squared distances of the normalized prediction of each view to the target of the other."""
    total = 0.0
    for view in (0, 1):
        for prediction, target in zip(p[view], t[1 - view], strict=True):
            difference = prediction / prediction.norm() - target / target.norm()
            total += float(difference.square().sum())
    return total / p.shape[1]


def test_the_loss_is_its_definition() -> None:
    method = byol()
    out = {name: normal(number, 2, 7, DIM) for number, name in enumerate(("h", "g", "p"))}
    targets = {"g": normal(9, 2, 7, DIM)}
    losses = method.loss(out, targets, whole(7))
    assert float(losses.total) == pytest.approx(by_loop(out["p"], targets["g"]), rel=1e-9)


def test_a_perfect_prediction_costs_nothing() -> None:
    t = normal(0, 2, 5, DIM)
    losses = byol().loss({"h": t, "g": t, "p": 3 * t.flip(0)}, {"g": t}, whole(5))
    assert float(losses.total) == pytest.approx(0, abs=1e-12)


def test_equal_embeddings_cost_what_one_image_costs_and_move_all_alike() -> None:
    p, t = (normal(seed, 1, 1, DIM).expand(2, 5, DIM).clone() for seed in (0, 1))
    p.requires_grad_()
    losses = byol().loss({"h": p, "g": p, "p": p}, {"g": t}, whole(5))
    assert float(losses.total) == pytest.approx(by_loop(p[:, :1], t[:, :1]), rel=1e-9)
    losses.total.backward()
    assert p.grad is not None and p.grad.isfinite().all()
    torch.testing.assert_close(p.grad, p.grad[:1, :1].expand(2, 5, DIM))


def test_gradient_reaches_encoder_and_predictor_but_not_the_teacher() -> None:
    method = byol()
    views = [normal(0, 1, 8, 3, 8, 8), normal(1, 1, 8, 3, 8, 8)]
    method.loss(method.embed(views), method.targets(views), whole(8)).total.backward()
    assert all(p.grad is None for p in method.teacher.parameters())
    trained = [*method.encoder.parameters(), *method.predictor.parameters()]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 1.0])
def test_the_momentum_rises_to_one_along_a_cosine(progress: float) -> None:
    method = byol(momentum=0.9)
    before = [p.clone() for p in method.teacher.parameters()]
    with torch.no_grad():
        for parameter in method.encoder.parameters():
            parameter.add_(1.0)
    method.after_step(progress)
    momentum = 1 - 0.1 * (math.cos(math.pi * progress) + 1) / 2
    for old, new in zip(before, method.teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + 1 - momentum)


def test_the_views_differ_in_blur_and_solarize_only() -> None:
    first, second = BYOL.augmentations(BYOLSettings(), AugmentConfig(grayscale=0.7))
    assert (first.blur, first.solarize) == (1.0, 0.0)
    assert (second.blur, second.solarize) == (0.1, 0.2)
    assert first.grayscale == second.grayscale == 0.7
