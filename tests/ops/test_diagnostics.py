"""The measures of health against known spectra, closed forms and counting by hand."""

import math
from collections import Counter
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wcl.ops.diagnostics import (
    alignment,
    collapsed_share,
    neighbor_quality,
    pair_quality,
    pair_statistics,
    rankme,
    same_class,
    uniformity,
    weak_label_quality,
    weak_label_sizes,
)
from wcl.ops.weak_labels import weak_labels

seeds = st.integers(0, 2**31 - 1)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_singular_values(values: list[float], rows: int, columns: int) -> Tensor:
    left, _ = torch.linalg.qr(normal(0, rows, len(values)))
    right, _ = torch.linalg.qr(normal(1, columns, len(values)))
    product: Tensor = left @ torch.diag(torch.tensor(values)) @ right.T
    return product


def unit(row: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def squared_distance(a: list[float], b: list[float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(unit(a), unit(b), strict=True))


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_rankme_of_the_identity_is_its_size(size: int) -> None:
    assert rankme(torch.eye(size)).item() == pytest.approx(size, rel=1e-4)


@pytest.mark.parametrize("shape", [(40, 10), (10, 40)])
def test_rankme_of_a_line_is_one(shape: tuple[int, int]) -> None:
    assert rankme(with_singular_values([3.0], *shape)).item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("rank", [1, 2, 5, 9])
def test_rankme_of_equal_singular_values_is_their_number(rank: int) -> None:
    features = with_singular_values([7.0] * rank, 50, 12)
    assert rankme(features).item() == pytest.approx(rank, rel=1e-3)


def test_rankme_of_unequal_singular_values_is_the_exponential_of_their_entropy() -> None:
    expected = math.exp(0.5 * math.log(2) + 2 * 0.25 * math.log(4))
    assert rankme(with_singular_values([4.0, 2.0, 2.0], 30, 8)).item() == pytest.approx(
        expected, rel=1e-3
    )


def test_rankme_does_not_depend_on_the_scale() -> None:
    features = normal(0, 30, 6)
    torch.testing.assert_close(rankme(features), rankme(1000 * features))


def test_rankme_of_nothing_but_zeros_is_finite() -> None:
    assert rankme(torch.zeros(6, 4)).isfinite()


@pytest.mark.parametrize(("cosine", "expected"), [(1.0, 0.0), (0.0, 2.0), (-1.0, 4.0), (0.5, 1.0)])
def test_alignment_has_its_closed_form(cosine: float, expected: float) -> None:
    first = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    sine = math.sqrt(1 - cosine**2)
    second = torch.tensor([[cosine, sine], [sine, cosine]])
    assert alignment(first, second).item() == pytest.approx(expected, abs=1e-6)


@given(seeds, st.integers(2, 12), st.integers(1, 6))
@settings(deadline=None, max_examples=30)
def test_alignment_is_the_mean_squared_distance(seed: int, count: int, width: int) -> None:
    a, b = normal(seed, count, width), normal(seed + 1, count, width)
    expected = sum(map(squared_distance, a.tolist(), b.tolist())) / count
    assert alignment(a, b).item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@given(seeds, st.integers(2, 12), st.integers(1, 6))
@settings(deadline=None, max_examples=30)
def test_uniformity_is_the_log_of_the_mean_over_pairs(seed: int, count: int, width: int) -> None:
    rows = normal(seed, count, width).tolist()
    values = [math.exp(-2 * squared_distance(a, b)) for a, b in permutations(rows, 2)]
    expected = math.log(sum(values) / len(values))
    assert uniformity(torch.tensor(rows)).item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_uniformity_of_a_collapse_is_zero_of_two_poles_minus_eight_of_axes_minus_four() -> None:
    assert uniformity(torch.ones(9, 3)).item() == pytest.approx(0, abs=1e-5)
    assert uniformity(torch.tensor([[1.0, 1.0], [-5.0, -5.0]])).item() == pytest.approx(-8)
    assert uniformity(3 * torch.eye(7)).item() == pytest.approx(-4)


def test_dimensions_that_do_not_vary_are_the_collapsed_share() -> None:
    alive = normal(0, 200, 6)
    assert collapsed_share(torch.cat([alive, torch.zeros(200, 2)], dim=1)).item() == 0.25
    assert collapsed_share(alive).item() == 0


def test_a_dimension_is_collapsed_below_a_twentieth_of_an_even_spread() -> None:
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 8)[:, :3]
    rows = signs * torch.tensor([1.0, 0.02, 0.03])  # an even spread over 4 dimensions is 0.5
    assert collapsed_share(torch.nn.functional.pad(rows, (0, 1))).item() == 0.5


def test_equal_rows_are_wholly_collapsed_whatever_their_length() -> None:
    rows = normal(0, 1, 8) * torch.linspace(1, 9, 50)[:, None]
    assert collapsed_share(rows).item() == 1


@given(st.lists(st.integers(0, 11), min_size=12, max_size=12))
@settings(deadline=None, max_examples=60)
def test_sizes_of_components_are_counted(labels: list[int]) -> None:
    sizes = weak_label_sizes(torch.tensor(labels))
    counts = Counter(labels)
    assert sizes["components"].item() == len(counts)
    assert sizes["largest_component"].item() == pytest.approx(max(counts.values()) / 12)


@given(
    st.integers(2, 20).flatmap(
        lambda n: st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, 2)), min_size=n, max_size=n
        )
    ),
    st.integers(3, 5),
)
@settings(deadline=None, max_examples=100)
def test_quality_of_weak_labels_is_what_counting_pairs_gives(
    rows: list[tuple[int, int]], class_count: int
) -> None:
    labels, classes = [label for label, _ in rows], [of for _, of in rows]
    pairs = list(permutations(range(len(rows)), 2))
    positive = [labels[i] == labels[j] for i, j in pairs]
    same = [classes[i] == classes[j] for i, j in pairs]
    both = sum(p and s for p, s in zip(positive, same, strict=True))
    commonest = sum(
        max(Counter(of for other, of in rows if other == label).values()) for label in set(labels)
    )
    quality = weak_label_quality(torch.tensor(labels), torch.tensor(classes), class_count)
    assert {name: value.item() for name, value in quality.items()} == pytest.approx(
        {
            "purity": commonest / len(rows),
            "pair_precision": both / max(1, sum(positive)),
            "pair_recall": both / max(1, sum(same)),
            "collision_rate": (sum(same) - both) / max(1, len(pairs) - sum(positive)),
        }
    )


def test_weak_labels_that_are_the_classes_have_full_marks() -> None:
    classes = torch.arange(12) % 3
    rows = torch.nn.functional.one_hot(classes, 3).float()
    quality = weak_label_quality(weak_labels(rows), classes, 3)
    assert [quality[name].item() for name in ("purity", "pair_precision", "pair_recall")] == [1] * 3
    assert quality["collision_rate"].item() == 0


@st.composite
def chosen_pairs(draw: st.DrawFn) -> tuple[list[int], list[list[int]], list[int]]:
    """The images of a batch, the positives of each, perhaps outside it, and all classes."""
    batch = draw(st.lists(st.integers(0, 9), min_size=2, max_size=6, unique=True))
    others = st.sampled_from([-1, *(batch if draw(st.booleans()) else range(10))])
    k = draw(st.integers(1, 4))
    positives = draw(_table(len(batch), st.lists(others, min_size=k, max_size=k)))
    return batch, positives, draw(st.lists(st.integers(0, 30), min_size=10, max_size=10))


def share(count: int, total: int) -> float:
    return count / total if total else math.nan


@given(chosen_pairs())
@settings(deadline=None, max_examples=200)
def test_chosen_pairs_are_counted(case: tuple[list[int], list[list[int]], list[int]]) -> None:
    batch, positives, numbers = case
    classes = [number % 3 for number in numbers]
    of = {i: set(row) - {-1, i} for i, row in zip(batch, positives, strict=True)}
    pairs = [(i, j) for i in batch for j in of[i]]
    inside = [(i, j) for i, j in pairs if j in batch]
    same = [(i, j) for i, j in permutations(batch, 2) if classes[i] == classes[j]]
    correct = sum(classes[i] == classes[j] for i, j in pairs)
    recall = share(correct, len(same)) if len(inside) == len(pairs) else math.nan
    found = torch.tensor(positives), torch.tensor(batch)
    values = pair_statistics(*found) | pair_quality(*found, torch.tensor(classes))
    assert {name: value.item() for name, value in values.items()} == pytest.approx(
        {
            "positives": len(pairs) / len(batch),
            "conflicting": share(sum(i not in of[j] for i, j in inside), len(inside)),
            "pair_precision": share(correct, len(pairs)),
            "pair_recall": recall,
        },
        nan_ok=True,
    )


@st.composite
def neighbors_then_and_now(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Of some images, k neighbors each, all different, and K before, of which some are twice."""
    images, now, before = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    number = st.integers(0, 9)
    return (
        draw(_table(images, st.lists(number, min_size=now, max_size=now, unique=True))),
        draw(_table(images, st.lists(number, min_size=before, max_size=before))),
    )


def _table(rows: int, row: st.SearchStrategy[list[int]]) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(row, min_size=rows, max_size=rows)


@given(neighbors_then_and_now())
def test_neighbors_changed_are_those_not_in_the_set_of_before(
    tables: tuple[list[list[int]], list[list[int]]],
) -> None:
    now, before = tables
    new = sum(len(set(a) - set(b)) for a, b in zip(now, before, strict=True))
    total = sum(map(len, now))
    quality = neighbor_quality(torch.tensor(now), torch.ones(1), torch.tensor(before))
    assert quality["neighbors_changed"].item() == pytest.approx(new / total, abs=1e-6)


def test_the_order_of_neighbors_is_no_change() -> None:
    now = torch.tensor([[1, 2, 3], [4, 5, 6]])
    quality = neighbor_quality(now, torch.ones(2, 3), now.flip(1))
    assert quality["neighbors_changed"].item() == 0


def test_neighbors_that_had_none_before_are_no_change_but_similar() -> None:
    similarity = normal(0, 5, 3)
    quality = neighbor_quality(torch.zeros(5, 3, dtype=torch.long), similarity)
    assert quality.keys() == {"neighbor_similarity"}
    mean = sum(similarity.double().flatten().tolist()) / 15
    assert quality["neighbor_similarity"].item() == pytest.approx(mean, rel=1e-5)


@given(
    st.lists(st.integers(0, 3), min_size=10, max_size=10),
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.integers(1, 4),
    seeds,
)
def test_neighbors_of_the_same_class_are_counted(
    classes: list[int], rows: list[int], k: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    neighbors = torch.randint(10, (len(rows), k), generator=generator)
    same = [
        classes[row] == classes[other]
        for row, others in zip(rows, neighbors.tolist(), strict=True)
        for other in others
    ]
    fraction = same_class(neighbors, torch.tensor(rows), torch.tensor(classes))
    assert fraction.item() == pytest.approx(sum(same) / len(same), abs=1e-6)
