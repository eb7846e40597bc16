"""SimSiam: its loss against a loop, its stop-gradient, and its bottleneck."""

import pytest
import torch
from torch import Tensor, nn

from built_methods import DIM, build, normal, whole
from wcl.methods.simsiam import SimSiam


def simsiam(bottleneck: int = 4) -> SimSiam:
    method = build("simsiam", bottleneck=bottleneck).double()
    assert isinstance(method, SimSiam)
    return method


def by_loop(p: Tensor, z: Tensor) -> Tensor:
    """Half of minus the cosine of the prediction of each view to the other, per image."""
    total = torch.zeros((), dtype=torch.float64)
    for view in (0, 1):
        for prediction, target in zip(p[view], z[1 - view].detach(), strict=True):
            cosine = prediction @ target / (prediction.norm() * target.norm())
            total = total - cosine / 2
    return total / p.shape[1]


def test_the_loss_and_its_gradient_are_their_definition() -> None:
    out = {name: normal(number, 2, 7, DIM) for number, name in enumerate(("h", "g", "z", "p"))}
    p, z = out["p"].requires_grad_(), out["z"].requires_grad_()
    loss, expected = simsiam().loss(out, {}, whole(7)).total, by_loop(p, z)
    torch.testing.assert_close(loss, expected)
    (found,), (wanted,) = torch.autograd.grad(loss, p), torch.autograd.grad(expected, p)
    torch.testing.assert_close(found, wanted)


def test_no_gradient_flows_through_the_projection_that_is_predicted() -> None:
    z = normal(0, 2, 7, DIM).requires_grad_()
    out = {"h": z, "g": z, "z": z, "p": normal(1, 2, 7, DIM).requires_grad_()}
    losses = simsiam().loss(out, {}, whole(7))
    (gradient,) = torch.autograd.grad(losses.total, z, allow_unused=True)
    assert gradient is None


def test_the_projection_is_normalized_before_the_predictor() -> None:
    method = simsiam()
    out = method.embed([normal(0, 2, 8, 3, 8, 8)])
    g, z = out["g"].flatten(0, 1), out["z"].flatten(0, 1)
    deviation = (g.var(dim=0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(z, (g - g.mean(dim=0)) / deviation)
    method.loss(out, {}, whole(8)).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())


@pytest.mark.parametrize(("bottleneck", "hidden"), [(1, 5), (2, 2), (100, 1)])
def test_the_predictor_is_as_narrow_as_told(bottleneck: int, hidden: int) -> None:
    first = simsiam(bottleneck).predictor[0]
    assert isinstance(first, nn.Linear)
    assert (first.in_features, first.out_features) == (DIM, hidden)


def test_equal_embeddings_have_the_best_loss_and_no_gradient() -> None:
    """A collapse: why the loss alone does not show whether a run works."""
    rows = torch.ones(2, 6, DIM, dtype=torch.float64)
    p = rows.clone().requires_grad_()
    losses = simsiam().loss({"h": rows, "g": rows, "z": rows, "p": p}, {}, whole(6))
    assert losses.total.item() == pytest.approx(-1)
    losses.total.backward()
    assert p.grad is not None and p.grad.abs().max() < 1e-12
