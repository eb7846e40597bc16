"""Approximate nearest neighbors: how many of the true ones are found, and the recall reported."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from wcl.neighbors import approximate
from wcl.neighbors.approximate import ApproximateSearch
from wcl.neighbors.sharded import ShardedFeatures


def random_rows(count: int, width: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(0))


def cosines(queries: Tensor, keys: Tensor) -> Tensor:
    """(Q, N) in double precision, whatever the precision of the rows."""
    return F.normalize(queries.double(), dim=1) @ F.normalize(keys.double(), dim=1).T


def recall_by_counting(rows: Tensor, among: Tensor, found: Tensor) -> float:
    """Fraction of the true neighbors of the images `among` that are in their rows of `found`."""
    cosine = cosines(rows[among], rows[among]).fill_diagonal_(-2)
    truth = among[cosine.argsort(dim=1, descending=True)[:, : found.shape[1]]]
    hits = [len({*a} & {*b}) for a, b in zip(truth.tolist(), found.tolist(), strict=True)]
    return sum(hits) / found.numel()


@pytest.mark.parametrize("wanted", [0.1, 0.6, 0.95])
@pytest.mark.parametrize("step", [1, 3])
def test_the_recall_reported_is_the_share_of_true_neighbors_found(
    wanted: float, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "_RECALL", wanted)
    monkeypatch.setattr(approximate, "_LISTS_SEARCHED_FIRST", 1)
    rows = F.normalize(random_rows(600, 12), dim=1).half()
    candidates = torch.arange(0, 600, step)
    search = ApproximateSearch(ShardedFeatures(rows), 5, candidates)
    _, index = search.nearest(candidates)
    recall = recall_by_counting(rows, candidates, index)
    assert search.recall == pytest.approx(recall, abs=1e-3)
    assert search.recall >= wanted


def test_approximate_neighbors_are_other_candidates_with_their_cosines_in_falling_order() -> None:
    rows = F.normalize(random_rows(500, 16), dim=1).half()
    candidates = torch.arange(500)[torch.arange(500) % 5 != 0]
    cosine, index = ApproximateSearch(ShardedFeatures(rows), 6, candidates).nearest(candidates)
    assert set(index.flatten().tolist()) <= set(candidates.tolist())
    assert all(
        len({i, *row}) == 7 for i, row in zip(candidates.tolist(), index.tolist(), strict=True)
    )
    expected = cosines(rows[candidates], rows).gather(1, index)
    torch.testing.assert_close(cosine.double(), expected, rtol=0, atol=1e-6)
    assert (cosine.diff(dim=1) <= 0).all()


def test_approximate_search_leaves_itself_out_among_twins_too() -> None:
    rows = F.normalize(random_rows(60, 8), dim=1).half().repeat(6, 1)
    every = torch.arange(360)
    _, index = ApproximateSearch(ShardedFeatures(rows), 3, every).nearest(every)
    for image, found in enumerate(index.tolist()):
        assert set(found) <= set(range(image % 60, 360, 60)) - {image}
        assert found == sorted(set(found))  # the lower number first, and none twice
        assert len(found) == 3


def test_approximate_search_finds_the_same_twice() -> None:
    rows = F.normalize(random_rows(800, 24), dim=1).half()
    every = torch.arange(800)
    first, second = (ApproximateSearch(ShardedFeatures(rows), 4, every) for _ in range(2))
    assert first.recall == second.recall
    for a, b in zip(first.nearest(every), second.nearest(every), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("first", [1, 2, 8])
def test_approximate_search_finds_as_many_as_are_wanted(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "_LISTS_SEARCHED_FIRST", first)
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(70, 32, generator=generator)  # 20 groups of 184 and 40 of 8
    which = torch.cat([torch.arange(3680) % 20, 20 + torch.arange(320) % 40])
    rows = F.normalize(
        centers[which] + 0.05 * torch.randn(4000, 32, generator=generator), dim=1
    ).half()
    every = torch.arange(4000)
    search = ApproximateSearch(ShardedFeatures(rows), 20, every)
    cosine, index = search.nearest(every)
    assert (index >= 0).all(), (search.recall, int((index < 0).sum()))
    assert (cosine >= -1.01).all()


def test_approximate_search_of_all_lists_is_near_exact_in_tight_groups() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 32, generator=generator)[torch.arange(1000) % 60]
    x = x + 0.05 * torch.randn(1000, 32, generator=generator)
    search = ApproximateSearch(ShardedFeatures(F.normalize(x, dim=1).half()), 4, torch.arange(1000))
    assert search.recall >= 0.95


@pytest.mark.parametrize("count", [1000, 1001, 1500, 1999, 2999, 5500])
def test_the_sample_is_spread_over_all_rows(count: int) -> None:
    sample = approximate.evenly_spaced(torch.arange(count), 1000)
    assert sample[-1] >= 0.95 * count


def test_recall_among_twins_counts_a_twin_as_found() -> None:
    rows = F.normalize(random_rows(50, 32), dim=1).half().repeat(20, 1)
    search = ApproximateSearch(ShardedFeatures(rows), 4, torch.arange(1000))
    assert search.recall >= 0.95
