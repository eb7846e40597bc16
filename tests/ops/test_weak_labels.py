"""Weak labels against Algorithm 1 of the paper, against SciPy and against loops in float64."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wcl.ops.weak_labels import components, components_by_scipy, nearest_neighbors, weak_labels

Partition = set[frozenset[int]]

# Rows whose normalized form is exact in binary, so that cosines are exact and ties are true ties.
EXACT_ROWS = (
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, -1.0),
    (0.0, 0.0, 0.0, 8.0),
    (1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, -1.0, 1.0),
    (2.0, -2.0, 2.0, -2.0),
    (-0.5, -0.5, 0.5, 0.5),
)
exact_embeddings = st.lists(st.sampled_from(EXACT_ROWS), min_size=2, max_size=33).map(torch.tensor)
few_integers = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(-2, 2).map(float), min_size=width, max_size=width),
        min_size=2,
        max_size=33,
    ).map(torch.tensor)
)
seeds = st.integers(0, 2**31 - 1)


def normal(seed: int, *shape: int) -> Tensor:
    """Normal numbers in float64, where near ties do not happen by chance."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def exact_rows(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(EXACT_ROWS)[torch.randint(len(EXACT_ROWS), (count,), generator=generator)]


def with_duplicates(seed: int, count: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    different = max(1, count // 3)
    return normal(seed, different, width)[torch.randint(different, (count,), generator=generator)]


def unit_rows(embeddings: Tensor) -> Tensor:
    rows = embeddings.double()
    norms = rows.square().sum(dim=1).sqrt()
    return rows / torch.where(norms == 0, 1.0, norms)[:, None]


def neighbors_by_loop(embeddings: Tensor) -> list[int]:
    """The nearest other row of every row in float64; the first of the best."""
    rows = unit_rows(embeddings)
    found = []
    for i in range(len(rows)):
        best, best_similarity = -1, -math.inf
        for j, similarity in enumerate((rows * rows[i]).sum(dim=1).tolist()):
            if j != i and similarity > best_similarity:
                best, best_similarity = j, similarity
        found.append(best)
    return found


def algorithm_1(successor: Sequence[int]) -> Partition:
    """Algorithm 1 of the paper, its makeSet, find and union, over the edges (i, successor)."""
    set_with = {v: frozenset({v}) for v in range(len(successor))}
    for i, j in enumerate(successor):
        if set_with[i] != set_with[j]:
            union = set_with[i] | set_with[j]
            for v in union:
                set_with[v] = union
    return set(set_with.values())


def partition(labels: Tensor) -> Partition:
    members: dict[int, set[int]] = {}
    for index, label in enumerate(labels.tolist()):
        members.setdefault(label, set()).add(index)
    return {frozenset(group) for group in members.values()}


def assert_follows_the_paper(embeddings: Tensor) -> None:
    successor = nearest_neighbors(embeddings, embeddings).tolist()
    labels = weak_labels(embeddings)
    assert partition(labels) == algorithm_1(successor)
    assert partition(labels) == partition(weak_labels(embeddings, backend="scipy"))
    for group in partition(labels):
        assert len(group) >= 2
        assert {labels[i].item() for i in group} <= group


def assert_nearest_up_to_rounding(embeddings: Tensor, tolerance: float) -> None:
    rows = unit_rows(embeddings)
    similarity = (rows @ rows.T).fill_diagonal_(-math.inf)
    found = nearest_neighbors(embeddings, embeddings)
    assert (found != torch.arange(len(rows))).all()
    chosen = similarity.gather(1, found[:, None])[:, 0]
    assert (chosen >= similarity.amax(dim=1) - tolerance).all()


@given(exact_embeddings)
@settings(deadline=None, max_examples=150)
def test_exact_ties_go_to_the_lowest_index(embeddings: Tensor) -> None:
    assert nearest_neighbors(embeddings, embeddings).tolist() == neighbors_by_loop(embeddings)


@given(exact_embeddings)
@settings(deadline=None, max_examples=100)
def test_weak_labels_follow_algorithm_1_under_exact_ties(embeddings: Tensor) -> None:
    assert partition(weak_labels(embeddings)) == algorithm_1(neighbors_by_loop(embeddings))
    assert_follows_the_paper(embeddings)


@given(few_integers)
@settings(deadline=None, max_examples=100)
def test_weak_labels_follow_algorithm_1_on_integers_from_a_tiny_set(embeddings: Tensor) -> None:
    assert_follows_the_paper(embeddings)
    assert_nearest_up_to_rounding(embeddings, 1e-6)


@given(seeds, st.integers(2, 40), st.integers(2, 17))
@settings(deadline=None, max_examples=60)
def test_weak_labels_follow_algorithm_1_on_random_rows(seed: int, count: int, width: int) -> None:
    embeddings = normal(seed, count, width)
    assert nearest_neighbors(embeddings, embeddings).tolist() == neighbors_by_loop(embeddings)
    assert_follows_the_paper(embeddings)


@given(seeds, st.integers(2, 40), st.integers(1, 17))
@settings(deadline=None, max_examples=60)
def test_weak_labels_follow_algorithm_1_on_equal_rows(seed: int, count: int, width: int) -> None:
    embeddings = with_duplicates(seed, count, width).float()
    assert_follows_the_paper(embeddings)
    assert_nearest_up_to_rounding(embeddings, 1e-6)


@pytest.mark.parametrize("count", [511, 512, 513, 1030])
def test_batches_larger_than_a_block_of_rows_are_right(count: int) -> None:
    exact, smooth = exact_rows(count, count), normal(count, count, 16)
    for embeddings in (exact, smooth):
        expected = neighbors_by_loop(embeddings)
        assert nearest_neighbors(embeddings, embeddings).tolist() == expected
        assert partition(weak_labels(embeddings)) == algorithm_1(expected)
    for embeddings in (exact, smooth, smooth.float(), with_duplicates(0, count, 16).float()):
        assert_follows_the_paper(embeddings)
        assert_nearest_up_to_rounding(embeddings, 1e-6)


def test_two_rows_are_one_component_whatever_they_are() -> None:
    for rows in ([[1.0], [-1.0]], [[0.0], [0.0]], [[3.0], [3.0]], [[0.0], [5.0]]):
        assert weak_labels(torch.tensor(rows)).tolist() == [0, 0]


def test_three_rows_are_one_component() -> None:
    assert weak_labels(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])).unique().numel() == 1


@given(st.lists(st.sampled_from([-4.0, -1.0, 0.0, 0.5, 3.0]), min_size=2, max_size=40))
@settings(deadline=None, max_examples=80)
def test_one_dimension_is_a_matter_of_sign(numbers: list[float]) -> None:
    embeddings = torch.tensor(numbers)[:, None]
    assert nearest_neighbors(embeddings, embeddings).tolist() == neighbors_by_loop(embeddings)
    assert_follows_the_paper(embeddings)


def test_zero_rows_are_equally_near_to_everything_and_take_the_first() -> None:
    embeddings = torch.zeros(7, 3)
    assert nearest_neighbors(embeddings, embeddings).tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert weak_labels(embeddings).unique().numel() == 1


def test_equal_exact_rows_fall_into_one_component() -> None:
    for count in (2, 3, 5, 64, 513):
        assert weak_labels(torch.full((count, 16), -2.0)).unique().numel() == 1


@given(seeds, st.integers(2, 60), st.data())
@settings(deadline=None, max_examples=60)
def test_some_of_the_queries_in_any_order_give_their_part_of_the_whole(
    seed: int, count: int, data: st.DataObject
) -> None:
    own = torch.tensor(
        data.draw(st.lists(st.integers(0, count - 1), unique=True)), dtype=torch.long
    )
    for keys in (normal(seed, count, 8), exact_rows(seed, count)):
        whole = nearest_neighbors(keys, keys)
        assert nearest_neighbors(keys[own], keys, own).equal(whole[own])


def test_shards_larger_than_a_block_of_rows_join_to_the_whole() -> None:
    order = torch.randperm(1300, generator=torch.Generator().manual_seed(0))
    for keys in (exact_rows(1, 1300), normal(1, 1300, 16)):
        whole = nearest_neighbors(keys, keys)
        for own in order.split([600, 700]):
            assert nearest_neighbors(keys[own], keys, own).equal(whole[own])


@given(seeds, st.integers(2, 40), st.data())
@settings(deadline=None, max_examples=60)
def test_scaling_rows_by_powers_of_two_changes_nothing(
    seed: int, count: int, data: st.DataObject
) -> None:
    embeddings = with_duplicates(seed, count, 5).float()
    exponents = data.draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count))
    scaled = embeddings * 2.0 ** torch.tensor(exponents)[:, None]
    assert weak_labels(scaled).equal(weak_labels(embeddings))


@given(
    st.integers(1, 70).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n))
)
@settings(deadline=None, max_examples=300)
def test_components_of_any_functional_graph_match_scipy(successor: list[int]) -> None:
    labels = components(torch.tensor(successor))
    assert partition(labels) == partition(components_by_scipy(torch.tensor(successor)))
    assert partition(labels) == algorithm_1(successor)
    assert all(labels[i].item() in group for group in partition(labels) for i in group)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 64, 100])
def test_a_cycle_of_any_length_with_a_tail_is_one_component(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    cycle = [*range(1, length), 0]
    tail = [length - 1, *range(length, length + 40)]
    order = torch.randperm(length + 41, generator=generator)
    successor = torch.empty(length + 41, dtype=torch.long)
    successor[order] = order[torch.tensor(cycle + tail)]
    assert components(successor).unique().numel() == 1


@given(st.permutations(range(24)))
@settings(deadline=None, max_examples=60)
def test_components_of_a_permutation_are_named_by_the_least_of_each_cycle(
    successor: list[int],
) -> None:
    labels = components(torch.tensor(successor)).tolist()
    for node in range(24):
        cycle, at = {node}, successor[node]
        while at != node:
            cycle.add(at)
            at = successor[at]
        assert labels[node] == min(cycle)


def test_one_node_that_points_at_itself_is_a_component() -> None:
    assert components(torch.tensor([0])).tolist() == [0]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("backend", ["pointer", "scipy"])
def test_embeddings_that_are_not_finite_are_an_error(number: float, backend: str) -> None:
    embeddings = torch.ones(4, 3)
    embeddings[2, 1] = number
    with pytest.raises(ValueError, match="finite embeddings"):
        weak_labels(embeddings, backend)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (4,), (2, 3, 4)])
def test_fewer_than_two_rows_or_another_shape_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least two rows"):
        weak_labels(torch.ones(shape))


def test_weak_labels_record_nothing_for_the_gradient() -> None:
    embeddings = normal(0, 6, 4).requires_grad_()
    recorded: list[Tensor] = []

    def record(tensor: Tensor) -> Tensor:
        recorded.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        labels = weak_labels(embeddings)
        assert recorded == []
        embeddings.square()
        assert recorded  # the hook does see what would be kept
    assert not labels.requires_grad


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("count", [2, 3, 515, 1030])
def test_equal_rows_tie_wherever_they_stand(count: int, threads: int) -> None:
    """A product of matrices may round equal rows differently; their neighbors must not differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(20):
            row = torch.randn(1, 128, generator=torch.Generator().manual_seed(seed))
            rows = row.expand(count, -1).contiguous()
            found = nearest_neighbors(rows, rows)
            assert found[0] == 1
            assert (found[1:] == 0).all()
            assert len(weak_labels(rows).unique()) == 1
    finally:
        torch.set_num_threads(before)


def test_copies_scattered_over_a_batch_point_at_their_lowest() -> None:
    originals = torch.randn(150, 64, generator=torch.Generator().manual_seed(0))
    which = torch.arange(1050) % 150
    found = nearest_neighbors(originals[which], originals[which])
    lowest = torch.where(torch.arange(1050) < 150, torch.arange(1050) + 150, which)
    assert torch.equal(found, lowest)
