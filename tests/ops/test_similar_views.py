"""Similar views and the loss with them, against plain loops and at their limits."""

import math
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from naive_losses import (
    add_up,
    assert_same_with_gradient,
    cosine,
    normal,
    nt_xent_by_loop,
    seeds,
    shards,
    temperatures,
)
from wcl.ops import similar_views
from wcl.ops.similar_views import contrast_with_similar, images_of, most_similar

Use = Literal["attract", "eliminate"]
Aggregate = Literal["max", "mean"]
USES: list[Use] = ["attract", "eliminate"]
uses = st.sampled_from(USES)
AGGREGATES: list[Aggregate] = ["max", "mean"]


def similar_by_loop(
    queries: Tensor, views: Tensor, k: int, threshold: float, aggregate: Aggregate
) -> list[list[int]]:
    images = len(views) // 2
    found = []
    for i in range(images):
        scores = {}
        for m, view in enumerate(views):
            values = [float(cosine(query, view)) for query in queries[:, i]]
            score = max(values) if aggregate == "max" else sum(values) / len(values)
            if m % images != i and score > threshold:
                scores[m] = score
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:k]
        found.append(best + [-1] * (k - len(best)))
    return found


@given(
    seeds,
    st.integers(2, 7),
    st.integers(1, 4),
    st.integers(1, 16),
    st.sampled_from([-math.inf, 0.0, 0.5, 1.0]),
    st.sampled_from(AGGREGATES),
    st.integers(1, 4),
)
@settings(deadline=None, max_examples=60)
def test_similar_views_are_the_best_by_definition(
    seed: int,
    images: int,
    per_image: int,
    k: int,
    threshold: float,
    aggregate: Aggregate,
    at_a_time: int,
) -> None:
    """Also if fewer than k are above the threshold, or in the batch."""
    queries, views = normal(seed, per_image, images, 4), normal(seed + 1, 2 * images, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similar_views, "_ROWS_AT_A_TIME", at_a_time)
        found = most_similar(queries, views, torch.arange(images), k, threshold, aggregate)
    assert found.tolist() == similar_by_loop(queries, views, k, threshold, aggregate)


def test_each_process_finds_the_similar_views_of_its_images() -> None:
    queries, views = normal(0, 3, 6, 4), normal(1, 12, 4)
    whole = most_similar(queries, views, torch.arange(6), 3)
    own = torch.tensor([4, 1])
    assert torch.equal(most_similar(queries[:, own], views, own, 3), whole[own])
    assert most_similar(queries[:, :0], views, own[:0], 3).shape == (0, 3)


def some_similar(seed: int, images: int, k: int) -> Tensor:
    """(2·images, k) different views of other images, of which about a third is missing."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for anchor in range(2 * images):
        order = torch.randperm(2 * images, generator=generator)
        others = order[order % images != anchor % images][:k]
        row = torch.full((k,), -1)
        row[: len(others)] = others
        rows.append(row.masked_fill(torch.rand(k, generator=generator) < 1 / 3, -1))
    return torch.stack(rows)


def contrast_by_loop(
    z1: Tensor, z2: Tensor, similar: Tensor, temperature: float, use: Use
) -> Tensor:
    views, count = [*z1, *z2], len(z1)
    total = torch.zeros((), dtype=z1.dtype)
    for i, anchor in enumerate(views):
        false = set(similar[i].tolist()) - {-1}
        left_out = false if use == "eliminate" else set()
        logits = {m: cosine(anchor, view) / temperature for m, view in enumerate(views)}
        kept = [logit.exp() for m, logit in logits.items() if m != i and m not in left_out]
        denominator = torch.stack(kept).sum()
        positives = {(i + count) % (2 * count)} | (false if use == "attract" else set())
        terms = [-torch.log(logits[p].exp() / denominator) for p in positives]
        total = total + torch.stack(terms).mean()
    return total / (2 * count)


@given(seeds, st.integers(2, 6), st.integers(1, 5), temperatures, uses)
@settings(deadline=None, max_examples=60)
def test_the_loss_and_its_gradient_are_their_definition(
    seed: int, images: int, k: int, temperature: float, use: Use
) -> None:
    similar = some_similar(seed, images, k)
    assert_same_with_gradient(
        lambda a, b: contrast_with_similar(a, b, similar, temperature, use),
        lambda a, b: contrast_by_loop(a, b, similar, temperature, use),
        normal(seed + 1, images, 4),
        normal(seed + 2, images, 4),
    )


@given(seeds, st.integers(2, 9), uses)
@settings(deadline=None, max_examples=20)
def test_the_parts_of_several_processes_add_up(seed: int, images: int, use: Use) -> None:
    similar = some_similar(seed, images, 3)
    parts = shards(seed, images)
    assert_same_with_gradient(
        lambda a, b: add_up(
            contrast_with_similar(a, b, similar[torch.cat([own, own + images])], 0.2, use, own)
            for own in parts
        ),
        lambda a, b: contrast_with_similar(a, b, similar, 0.2, use),
        normal(seed + 1, images, 4),
        normal(seed + 2, images, 4),
    )


@pytest.mark.parametrize("use", USES)
def test_without_similar_views_it_is_nt_xent(use: Use) -> None:
    z1, z2 = normal(0, 7, 4), normal(1, 7, 4)
    loss = contrast_with_similar(z1, z2, torch.full((14, 3), -1), 0.1, use)
    torch.testing.assert_close(loss, nt_xent_by_loop(z1, z2, 0.1))


@pytest.mark.parametrize(("use", "denominator"), [("attract", 11), ("eliminate", 8)])
def test_equal_embeddings_have_the_loss_of_chance(use: Use, denominator: int) -> None:
    z = normal(0, 1, 4).expand(6, 4)
    similar = most_similar(torch.stack([z, z]), torch.cat([z, z]), torch.arange(6), 3)
    assert (similar >= 0).all() and not (similar % 6 == torch.arange(6)[:, None]).any()
    loss = contrast_with_similar(z, z, similar.repeat(2, 1), 0.1, use)
    assert loss.item() == pytest.approx(math.log(denominator))


def test_views_without_all_their_negatives_cost_nothing_if_these_are_eliminated() -> None:
    """Even where the negatives weigh e⁴⁰⁰ times as much as the positive."""
    z1 = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).requires_grad_()
    z2 = -z1.detach()
    everyone = torch.tensor([[1, 3], [0, 2], [1, 3], [0, 2]])
    loss = contrast_with_similar(z1, z2, everyone, 0.005, "eliminate")
    assert loss.item() == 0
    loss.backward()
    assert z1.grad is not None and z1.grad.isfinite().all()


def test_the_images_of_views_are_named_by_their_index() -> None:
    views = torch.tensor([[0, 5, -1], [2, -1, 3]])
    assert images_of(views, torch.tensor([70, 80, 90])).tolist() == [[70, 90, -1], [90, -1, 70]]
