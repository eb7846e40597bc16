"""InstDisc: its losses against loops, its bank, and its constant."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.methods.instdisc import InstDisc
from wcl.ops.randomness import device_bits

IMAGES = 64


def instdisc(negatives: int = 0) -> InstDisc:
    method = build("instdisc", negatives=negatives).double()
    assert isinstance(method, InstDisc)
    return method


def softmax_by_loop(f: Tensor, bank: Tensor) -> float:
    total = 0.0
    for i, each in enumerate(f):
        weights = [math.exp(float(each @ v) / 0.07) for v in bank]
        total -= math.log(weights[i] / sum(weights))
    return total / len(f)


def nce_by_loop(f: Tensor, bank: Tensor, drawn: Tensor, z: float) -> float:
    noise = drawn.shape[1] / len(bank)
    total = 0.0
    for i, each in enumerate(f):
        p = [math.exp(float(each @ v) / 0.07) / z for v in bank]
        total -= math.log(p[i] / (p[i] + noise))
        total -= sum(math.log(1 - p[j] / (p[j] + noise)) for j in drawn[i].tolist())
    return total / len(f)


@pytest.mark.parametrize("negatives", [0, IMAGES, 5000])
def test_with_few_images_the_loss_is_the_softmax_over_the_bank(negatives: int) -> None:
    method, g = instdisc(negatives), normal(0, 1, 9, DIM)
    loss = method.loss({"h": g, "g": g}, {}, whole(9)).total
    expected = softmax_by_loop(F.normalize(g[0], dim=1), method.bank)
    assert float(loss) == pytest.approx(expected, rel=1e-9)


def test_with_many_images_the_loss_is_nce_with_a_constant_from_the_first_step() -> None:
    method = instdisc(negatives=12)
    z = 0.0
    for step in range(2):
        g = normal(step, 1, 9, DIM)
        f = F.normalize(g[0], dim=1)
        drawn = device_bits(method.seed, method.steps, torch.arange(9), 12) % IMAGES
        if step == 0:
            weights = [
                math.exp(float(f[i] @ method.bank[j]) / 0.07) for i in range(9) for j in drawn[i]
            ]
            z = IMAGES * sum(weights) / len(weights)
        expected = nce_by_loop(f, method.bank, drawn, z)
        loss = method.loss({"h": g, "g": g}, {}, whole(9)).total
        assert float(loss) == pytest.approx(expected, rel=1e-6)
        method.after_step(0.5)
        assert float(method.log_z) == pytest.approx(math.log(z))


def test_the_entries_of_the_batch_move_and_keep_length_one() -> None:
    method, g = instdisc(), normal(0, 1, 9, DIM)
    before = method.bank.clone()
    method.loss({"h": g, "g": g}, {}, whole(9))
    method.after_step(0.5)
    moved = F.normalize(0.5 * before[:9] + 0.5 * F.normalize(g[0], dim=1), dim=1)
    torch.testing.assert_close(method.bank, torch.cat([moved, before[9:]]))


def test_equal_embeddings_give_the_log_of_the_number_of_images() -> None:
    method = instdisc()
    ones = torch.ones(1, 9, DIM, dtype=torch.float64)
    method.bank.copy_(F.normalize(ones[0, :1], dim=1))
    loss = method.loss({"h": ones, "g": ones}, {}, whole(9)).total
    assert float(loss) == pytest.approx(math.log(IMAGES))


def test_only_the_first_view_is_embedded() -> None:
    method = instdisc(12)
    out = method.embed([normal(0, 2, 8, 3, 8, 8)])
    assert len(out["g"]) == 1
    method.loss(out, {}, whole(8)).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())
