"""Soft WCL: its weak labels against a loop, its queue, its plain views and its degenerate cases."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import ArraySource
from wcl.data.loader import views_of
from wcl.data.views import ViewSpec
from wcl.methods.softwcl import SoftWCL, without_augmentation
from wcl.ops.losses import crop_nce, nt_xent
from wcl.system.errors import InputError

QUEUE = 20


def softwcl(crops: int = 0, **settings: Any) -> SoftWCL:
    method = build("softwcl", crops=crops, queue_size=QUEUE, **settings).double()
    assert isinstance(method, SoftWCL)
    return method


def by_loop(v: Tensor, t: Tensor, queue: Tensor, images: Tensor) -> Tensor:
    """Cross-entropy of the shares of each view and those of the teacher, one pair at a time."""
    terms = []
    for view in v:
        for i, (row, teacher) in enumerate(zip(view, t, strict=True)):
            others = [j for j in range(len(queue)) if int(images[j]) != i]
            row, teacher = row / row.norm(), teacher / teacher.norm()
            logits = torch.stack([row @ queue[j] / 0.1 for j in others])
            weights = torch.stack([(teacher @ queue[j] / 0.04).exp() for j in others])
            terms.append(-(weights / weights.sum() * logits.log_softmax(0)).sum())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("crops", [0, 3])
@pytest.mark.parametrize("steps", [0, 1])
def test_the_loss_and_its_gradient_are_their_definition(crops: int, steps: int) -> None:
    method = softwcl(crops, soft=0.7, cnce=0.3)
    g, phi = normal(0, 2 + crops, 9, DIM), normal(1, 2 + crops, 9, DIM).requires_grad_()
    out, targets = {"h": g, "g": g, "phi": phi}, {"phi": normal(2, 1, 9, DIM)}
    for _ in range(steps):  # then a part of the queue are the images themselves
        method.loss(out, {"phi": normal(3, 1, 9, DIM)}, whole(9))
        method.after_step(0.5)
    expected = 0.7 * by_loop(phi, targets["phi"][0], method.queue.rows, method.queue_images.rows)
    (gradient,) = torch.autograd.grad(expected, phi)
    total = expected + nt_xent(g[0], g[1], 0.1)
    if crops:
        total = total + 0.3 * crop_nce(g[2:], g[0], g[1], 0.1)
    losses = method.loss(out, targets, whole(9))
    torch.testing.assert_close(losses.total, total)
    torch.testing.assert_close(torch.autograd.grad(losses.total, phi)[0], gradient)
    assert losses.parts.keys() == {"nce", "soft"} | ({"cnce"} if crops else set())


def test_the_queue_takes_the_embeddings_of_the_plain_images() -> None:
    method = softwcl()
    g, t = normal(0, 2, 9, DIM), normal(1, 1, 9, DIM)
    out = {"h": g, "g": g, "phi": g}
    first = method.loss(out, {"phi": t}, whole(9)).positives
    assert first is not None and bool((first == -1).all())  # random rows are of no image
    method.after_step(0.5)
    torch.testing.assert_close(method.queue.rows[:9], F.normalize(t[0], dim=1))
    assert method.queue_images.rows.tolist() == [*range(9), *[-1] * 11]
    method.after_step(0.5)
    found = method.loss(out, {"phi": t}, whole(9)).positives
    assert found is not None and not bool((found == torch.arange(9)[:, None]).any())


def test_agreement_is_how_often_a_view_finds_what_the_teacher_finds() -> None:
    method = softwcl()
    phi, t = normal(0, 2, 9, DIM), normal(1, 1, 9, DIM)
    losses = method.loss({"h": phi, "g": phi, "phi": phi}, {"phi": t}, whole(9))
    found = []
    for view in phi:
        for row, teacher in zip(view, t[0], strict=True):
            nearest = (method.queue.rows @ teacher).argsort(descending=True)[:5]
            found.append(int((method.queue.rows @ row).argmax()) in nearest)
    assert float(losses.diagnostics["agreement"]) == pytest.approx(sum(found) / len(found))
    same = method.loss({"h": phi, "g": phi, "phi": t.expand(2, 9, DIM)}, {"phi": t}, whole(9))
    assert float(same.diagnostics["agreement"]) == 1


@pytest.mark.parametrize("only_itself", [False, True])
def test_equal_embeddings_have_equal_shares_and_a_finite_gradient(only_itself: bool) -> None:
    method = softwcl()
    same = F.normalize(torch.ones(9, DIM, dtype=torch.float64), dim=1)
    method.queue.rows.copy_(same[:1].expand(QUEUE, DIM))
    if only_itself:  # the queue has seen nothing but image 0
        method.queue_images.rows.zero_()
    phi = same.expand(2, 9, DIM).clone().requires_grad_()
    losses = method.loss({"h": phi, "g": phi, "phi": phi}, {"phi": same[None]}, whole(9))
    assert float(losses.parts["soft"].detach()) == pytest.approx(math.log(QUEUE))
    losses.total.backward()
    assert phi.grad is not None and bool(phi.grad.isfinite().all())


def test_the_teacher_sees_the_plain_image() -> None:
    pixels = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    augment = AugmentConfig(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), solarize=1, noise=1)
    maker = ViewMaker(without_augmentation(augment), 8)
    source = ArraySource("made", pixels)
    made = views_of(source, torch.arange(5).numpy(), [ViewSpec(maker, 1)], 0).views[0][0]
    mean, std = (torch.tensor(each)[:, None, None] for each in (augment.mean, augment.std))
    torch.testing.assert_close(made, (pixels / 255 - mean) / std, rtol=0, atol=1e-4)


def test_gradient_reaches_encoder_and_heads_but_not_the_teacher() -> None:
    method = softwcl()
    views = [normal(0, 2, 8, 3, 8, 8), normal(1, 1, 8, 3, 8, 8)]
    out, targets = method.embed(views), method.targets(views)
    assert len(out["phi"]) == 2 and len(targets["phi"]) == 1
    method.loss(out, targets, whole(8)).total.backward()
    assert all(p.grad is None for p in method.teacher.parameters())
    trained = method.encoder.parameters()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in trained)


def test_a_queue_longer_than_the_number_of_images_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"--loss\.queue_size: 99999 "):
        build("softwcl", queue_size=99999)
