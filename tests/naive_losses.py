"""Losses as plain loops over their definitions, and functions that their tests share."""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

Positives = Literal["mean", "sum"]
MODES: list[Positives] = ["mean", "sum"]
seeds = st.integers(0, 2**31 - 1)
modes = st.sampled_from(MODES)
temperatures = st.sampled_from([0.05, 0.1, 0.5, 2.0])


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels_of(seed: int, count: int, classes: int) -> Tensor:
    return torch.randint(
        min(classes, count), (count,), generator=torch.Generator().manual_seed(seed)
    )


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt())


def nt_xent_by_loop(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    views = [*z1, *z2]
    total = torch.zeros((), dtype=z1.dtype)
    for i, anchor in enumerate(views):
        positive = views[(i + len(z1)) % len(views)]
        denominator = torch.zeros((), dtype=z1.dtype)
        for k, other in enumerate(views):
            if k != i:
                denominator = denominator + torch.exp(cosine(anchor, other) / temperature)
        total = total - torch.log(torch.exp(cosine(anchor, positive) / temperature) / denominator)
    return total / len(views)


def supervised_by_loop(
    v: Tensor, labels: Tensor, temperature: float, positives: Positives, key_gradient: bool
) -> Tensor:
    keys = v if key_gradient else v.detach()
    total = torch.zeros((), dtype=v.dtype)
    for i, anchor in enumerate(v):
        denominator = torch.zeros((), dtype=v.dtype)
        for k, key in enumerate(keys):
            if k != i:
                denominator = denominator + torch.exp(cosine(anchor, key) / temperature)
        terms = [
            -torch.log(torch.exp(cosine(anchor, keys[j]) / temperature) / denominator)
            for j in range(len(v))
            if j != i and labels[j] == labels[i]
        ]
        if terms:
            summed = torch.stack(terms).sum()
            total = total + (summed / len(terms) if positives == "mean" else summed)
    return total / len(v)


def assert_same_with_gradient(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *inputs: Tensor
) -> None:
    mine = [tensor.clone().requires_grad_() for tensor in inputs]
    reference = [tensor.clone().requires_grad_() for tensor in inputs]
    loss, expected = ours(*mine), theirs(*reference)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
    for got, want in zip(
        torch.autograd.grad(loss, mine), torch.autograd.grad(expected, reference), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)


def shards(seed: int, count: int) -> list[Tensor]:
    """Split the positions 0 … count − 1 at random, in no order; the last shard is empty."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator)
    owner = torch.randint(3, (count,), generator=generator)
    return [order[owner == number] for number in range(4)]


def add_up(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum()
