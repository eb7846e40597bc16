"""SwAV: its loss against a loop, its prototypes, and their first epoch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.methods.swav import SwAV
from wcl.ops.sinkhorn import sinkhorn
from wcl.system.errors import InputError


def swav(crops: int = 3, freeze_epochs: float = 0, **settings: Any) -> SwAV:
    chosen = {"prototypes": 6, "freeze_epochs": freeze_epochs, **settings}
    method = build("swav", crops=crops, **chosen).double()
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


def step(method: SwAV, seed: int) -> tuple[Tensor, Tensor]:
    """One step on random projections; returns its loss and the normalized projections."""
    z = F.normalize(normal(seed, 2, 9, DIM), dim=2)
    out = {"h": z, "g": z, "scores": z @ method.prototypes.detach().T}
    loss = method.loss(out, {}, whole(9)).total
    method.after_step(0.5)
    return loss, z


@pytest.mark.parametrize("queue_start", [0, 1])
def test_the_queue_takes_part_in_the_assignment_once_it_is_full(queue_start: float) -> None:
    """A queue of 20 is full after three batches of nine; an epoch has four steps."""
    method = swav(crops=0, queue_size=20, queue_start=queue_start)
    past: list[Tensor] = []
    for number in range(6):
        prototypes, used = method.prototypes.detach(), number >= max(3, 4 * queue_start)
        loss, z = step(method, number)
        terms = []
        for view in (0, 1):
            rows = torch.cat([z[view], *(each[view] for each in past)])[: 9 + 20]
            codes = sinkhorn((rows if used else z[view]) @ prototypes.T)[:9]
            log_p = torch.log_softmax(z[1 - view] @ prototypes.T / 0.1, dim=1)
            terms.append(-(codes * log_p).sum(dim=1).mean())
        torch.testing.assert_close(loss, (terms[0] + terms[1]) / 2)
        past.insert(0, z.flip(1))  # the latest first, as the queue forgets the oldest


def test_weak_labels_are_the_nearest_prototypes() -> None:
    method = swav(crops=0)
    out = method.embed([normal(0, 2, 8, 3, 8, 8)])
    labels = method.loss(out, {}, whole(8)).weak_labels
    for view, found in enumerate(labels):
        nearest = out["scores"][view].argmax(dim=1)
        assert torch.equal(found[:, None] == found, nearest[:, None] == nearest)
        again = method.weak_labels({"g": out["g"][view]})
        assert again is not None and torch.equal(again, found)


def test_the_default_number_of_prototypes_fits_the_data() -> None:
    assert len(swav(prototypes=0).prototypes) == 16  # a quarter of 64 images


@pytest.mark.parametrize("prototypes", [1, 65])
def test_a_number_of_prototypes_without_sense_is_an_input_error(prototypes: int) -> None:
    with pytest.raises(InputError, match=rf"--loss\.prototypes: .* 64 images, not {prototypes}"):
        swav(prototypes=prototypes)


def test_a_queue_shorter_than_a_batch_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"--loss\.queue_size: 5 .* at least"):
        swav(queue_size=5)
