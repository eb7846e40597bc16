"""SwAV: its loss against a loop, its prototypes, and their first epoch."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import build, normal, whole
from wcl.methods.swav import SwAV
from wcl.ops.sinkhorn import sinkhorn


def swav(crops: int = 3, freeze_epochs: float = 0) -> SwAV:
    method = build("swav", crops=crops, prototypes=6, freeze_epochs=freeze_epochs).double()
    assert isinstance(method, SwAV)
    return method


def by_loop(scores: Tensor, temperature: float) -> float:
    """Mean cross-entropy of every other view with the codes of each of the two full views."""
    terms = []
    for s in (0, 1):
        codes = sinkhorn(scores[s], 0.05, 3)
        for t in range(len(scores)):
            if t == s:
                continue
            for code, values in zip(codes, scores[t], strict=True):
                log_p = torch.log_softmax(values / temperature, dim=0)
                terms.append(-float((code * log_p).sum()))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("crops", [0, 3])
def test_the_loss_is_its_definition(crops: int) -> None:
    method = swav(crops)
    views = [normal(0, 2, 8, 3, 8, 8)] + ([normal(1, crops, 8, 3, 4, 4)] if crops else [])
    out = method.embed(views)
    z = F.normalize(out["g"], dim=2)
    expected = torch.einsum("vnd,pd->vnp", z, method.prototypes)
    torch.testing.assert_close(out["scores"], expected)
    losses = method.loss(out, {}, whole(8))
    expected_loss = by_loop(out["scores"].detach(), 0.1)
    assert losses.total.item() == pytest.approx(expected_loss, rel=1e-9)
    assert 1 / 6 <= float(losses.diagnostics["prototypes_used"]) <= 1


def test_equal_embeddings_have_equal_codes_and_a_finite_loss() -> None:
    method = swav()
    scores = torch.ones(5, 8, 6, dtype=torch.float64)
    out = {"h": scores, "g": scores, "scores": scores}
    losses = method.loss(out, {}, whole(8))
    expected = torch.log(torch.tensor(6.0, dtype=torch.float64))
    torch.testing.assert_close(losses.total, expected)


def test_prototypes_have_length_one_after_every_step() -> None:
    method = swav()
    with torch.no_grad():
        method.prototypes.mul_(3)
    method.after_step(0.5)
    torch.testing.assert_close(method.prototypes.norm(dim=1), torch.ones(6, dtype=torch.float64))


def test_prototypes_do_not_move_in_the_first_epochs() -> None:
    """An epoch has four steps; the gradient is zero, not none, for data-parallel training."""
    method = swav(crops=0, freeze_epochs=1)
    moved = []
    for _ in range(6):
        method.zero_grad()
        out = method.embed([normal(0, 2, 8, 3, 8, 8)])
        method.loss(out, {}, whole(8)).total.backward()
        assert method.prototypes.grad is not None
        moved.append(bool(method.prototypes.grad.any()))
        method.after_step(0.5)
    assert moved == [False] * 4 + [True] * 2
