"""MoCo v2: its loss against a loop, its queue, and its momentum encoder."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.methods.moco import MoCo, queue_nce


def by_loop(q: Tensor, k: Tensor, queue: Tensor, temperature: float) -> float:
    total = 0.0
    for query, key in zip(q, k, strict=True):
        positive = math.exp(float(query @ key) / temperature)
        negatives = sum(math.exp(float(query @ other) / temperature) for other in queue)
        total -= math.log(positive / (positive + negatives))
    return total / len(q)


def moco(queue_size: int = 20, batch_size: int = 8) -> MoCo:
    method = build("moco", batch_size=batch_size, queue_size=queue_size).double()
    assert isinstance(method, MoCo)
    return method


def step(method: MoCo, seed: int, images: int = 8) -> Tensor:
    """One step on random embeddings; returns the normalized keys."""
    out = {name: normal(seed, 1, images, DIM) for name in ("h", "g")}
    keys = normal(seed + 1, 1, images, DIM)
    method.loss(out, {"g": keys}, whole(images))
    method.after_step(0.5)
    return F.normalize(keys[0], dim=1)


def test_the_loss_is_its_definition() -> None:
    method = moco()
    out = {name: normal(0, 1, 8, DIM) for name in ("h", "g")}
    losses = method.loss(out, {"g": normal(1, 1, 8, DIM)}, whole(8))
    q, k = F.normalize(out["g"][0], dim=1), F.normalize(normal(1, 1, 8, DIM)[0], dim=1)
    assert float(losses.total) == pytest.approx(by_loop(q, k, method.queue.rows, 0.2), rel=1e-9)


def test_equal_embeddings_give_the_log_of_the_number_of_keys() -> None:
    ones = F.normalize(torch.ones(4, 3, dtype=torch.float64), dim=1)
    found = queue_nce(ones, ones, ones[:1].expand(9, 3), 0.2)
    torch.testing.assert_close(found, torch.full((4,), math.log(10), dtype=torch.float64))


def test_the_keys_of_a_step_enter_the_queue() -> None:
    method = moco(queue_size=20)
    first = step(method, 0)
    assert torch.equal(method.queue.rows[:8], first)
    second = step(method, 2, images=5)  # a batch with unreadable images
    assert torch.equal(method.queue.rows[:13], torch.cat([first, second]))


def test_the_teacher_follows_and_no_gradient_reaches_it() -> None:
    method = moco()
    views = [normal(0, 2, 8, 3, 8, 8)]
    targets, out = method.targets(views), method.embed(views)
    assert len(out["g"]) == len(targets["g"]) == 1
    # The same weights at first: the key of the second view is its query.
    torch.testing.assert_close(targets["g"], method.embed([views[0].flip(0)])["g"])
    before = [p.clone() for p in method.teacher.parameters()]
    method.loss(out, targets, whole(8)).total.backward()
    assert all(p.grad is None for p in method.teacher.parameters())
    assert all(p.grad is not None for p in method.encoder.parameters())
    with torch.no_grad():
        for parameter in method.encoder.parameters():
            parameter.add_(1.0)
    method.after_step(0.5)
    for old, new in zip(before, method.teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.001)
