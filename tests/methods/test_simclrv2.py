"""SimCLR v2: its loss against a loop, its keys and its memory."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from naive_losses import nt_xent_by_loop
from wcl.methods.simclrv2 import SimCLRv2
from wcl.system.errors import InputError

IMAGES = 7


def simclrv2(queue_size: int = 20, **settings: Any) -> SimCLRv2:
    method = build("simclrv2", batch_size=IMAGES, queue_size=queue_size, **settings).double()
    assert isinstance(method, SimCLRv2)
    return method


def by_loop(z: Tensor, k: Tensor, queue: Tensor, temperature: float) -> float:
    z, k = F.normalize(z, dim=2), F.normalize(k, dim=2)
    total = 0.0
    for view in range(2):
        for image in range(IMAGES):
            others = [k[v, i] for v in range(2) for i in range(IMAGES) if i != image]
            powers = [
                math.exp(float(z[view, image] @ key) / temperature)
                for key in (k[1 - view, image], *others, *queue)
            ]
            total -= math.log(powers[0] / sum(powers))
    return total / (2 * IMAGES)


def test_the_loss_is_its_definition() -> None:
    method = simclrv2()
    out = {name: normal(0, 2, IMAGES, DIM) for name in ("h", "g")}
    keys = normal(1, 2, IMAGES, DIM)
    found = method.loss(out, {"g": keys}, whole(IMAGES))
    expected = by_loop(out["g"], keys, method.queue.rows, 0.1)
    assert float(found.total) == pytest.approx(expected, rel=1e-9)
    assert found.parts == {"nce": found.total}


def test_equal_embeddings_give_the_log_of_the_number_of_keys() -> None:
    method = simclrv2()
    ones = torch.ones(2, IMAGES, DIM, dtype=torch.float64)
    method.queue.rows.copy_(F.normalize(torch.ones(20, DIM).double(), dim=1))
    found = method.loss({"h": ones, "g": ones}, {"g": ones}, whole(IMAGES))
    assert float(found.total) == pytest.approx(math.log(2 * IMAGES - 1 + 20))


def test_without_a_memory_to_speak_of_it_is_the_loss_of_simclr() -> None:
    """The momentum encoder equals the encoder, and the queue is far from everything."""
    method = simclrv2(temperature=0.01)
    z = normal(0, 2, IMAGES, DIM).abs()
    method.queue.rows.copy_(F.normalize(-torch.ones(20, DIM).double(), dim=1))
    found = method.loss({"h": z, "g": z}, {"g": z}, whole(IMAGES))
    assert float(found.total) == pytest.approx(float(nt_xent_by_loop(z[0], z[1], 0.01)), rel=1e-9)


def test_the_queue_holds_the_keys_of_second_views_and_starts_with_random_ones() -> None:
    method = simclrv2()
    initial = method.queue.rows.clone()
    seen = []
    for step in range(3):
        keys = normal(step, 2, IMAGES, DIM)
        out = {name: normal(9, 2, IMAGES, DIM) for name in ("h", "g")}
        method.loss(out, {"g": keys}, whole(IMAGES))
        method.after_step(0.5)
        seen.append(F.normalize(keys[1], dim=1))
        if step == 0:  # not yet full
            torch.testing.assert_close(method.queue.rows, torch.cat([seen[0], initial[7:]]))
    # 21 keys in a queue of 20: the last one is at the place of the first.
    expected = torch.cat([seen[2][6:], seen[0][1:], seen[1], seen[2][:6]])
    torch.testing.assert_close(method.queue.rows, expected)


def test_both_views_are_queries_and_keys_and_the_teacher_follows() -> None:
    method = simclrv2(momentum=0.9)
    views = [normal(0, 2, IMAGES, 3, 8, 8)]
    targets, out = method.targets(views), method.embed(views)
    torch.testing.assert_close(targets["g"], out["g"])  # the same weights at first
    before = [p.clone() for p in method.teacher.parameters()]
    method.loss(out, targets, whole(IMAGES)).total.backward()
    assert all(p.grad is None for p in method.teacher.parameters())
    assert all(p.grad is not None for p in method.encoder.parameters())
    with torch.no_grad():
        for parameter in method.encoder.parameters():
            parameter.add_(1.0)
    method.after_step(0.5)
    for old, new in zip(before, method.teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.1)


def test_a_queue_shorter_than_a_batch_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"--loss\.queue_size: 6 .* at least 7"):
        simclrv2(queue_size=6)
