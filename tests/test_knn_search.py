"""Exact nearest neighbours against a full sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from wcl.knn import exact, nearest


def naive(queries: Tensor, keys: Tensor, k: int, itself: Tensor | None) -> Tensor:
    """(Q, k) cosines, highest first, by sorting everything."""
    similarity = F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T
    if itself is not None:
        similarity[torch.arange(len(queries)), itself] = -torch.inf
    return similarity.sort(dim=1, descending=True).values[:, :k]


@settings(max_examples=60)
@given(
    count=st.integers(2, 400),
    k=st.integers(1, 12),
    exclude=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_neighbours_are_those_of_a_full_sort(
    count: int, k: int, exclude: bool, seed: int
) -> None:
    rows = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)).double()
    itself = torch.arange(count) if exclude else None
    k = min(k, count - exclude)
    cosine, index = nearest(rows, rows, k, itself)
    expected = naive(rows, rows, k, itself)
    torch.testing.assert_close(cosine, expected)
    torch.testing.assert_close(F.cosine_similarity(rows[:, None], rows[index], dim=2), cosine)
    assert all(len(set(row)) == k for row in index.tolist())
    if exclude:
        assert not (index == torch.arange(count)[:, None]).any()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(700, 16, generator=torch.Generator().manual_seed(0)).double()
    whole = nearest(rows, rows, 5, torch.arange(700))
    monkeypatch.setattr(exact, "_KEYS_AT_A_TIME", 130)
    monkeypatch.setattr(exact, "_QUERIES_AT_A_TIME", 7)
    parts = nearest(rows, rows, 5, torch.arange(700))
    assert torch.equal(whole[1], parts[1])


def test_more_neighbours_than_candidates_are_refused() -> None:
    rows = torch.randn(5, 3)
    with pytest.raises(ValueError, match="k = 5 neighbours of 4 candidates"):
        nearest(rows, rows, 5, torch.arange(5))
