"""Exact nearest neighbors against a full sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from wcl.neighbors import exact, nearest
from wcl.neighbors.sharded import ShardedFeatures


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
def test_the_neighbors_are_those_of_a_full_sort(
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


def test_more_neighbors_than_candidates_are_refused() -> None:
    rows = torch.randn(5, 3)
    with pytest.raises(ValueError, match="k = 5 neighbors of 4 candidates"):
        nearest(rows, rows, 5, torch.arange(5))


def random_rows(count: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def cosines(queries: Tensor, keys: Tensor) -> Tensor:
    """(Q, N) in double precision, whatever the precision of the rows."""
    return F.normalize(queries.double(), dim=1) @ F.normalize(keys.double(), dim=1).T


def others_by_cosine(rows: Tensor, among: list[int], image: int) -> list[int]:
    """The numbers among those given, without the image's own, most similar to it first."""
    similar = cosines(rows[[image]], rows)[0].tolist()
    return sorted(set(among) - {image}, key=lambda other: -similar[other])


@settings(max_examples=60)
@given(data=st.data(), count=st.integers(3, 300), seed=st.integers(0, 1000))
def test_only_candidates_are_found_and_all_of_them_count(
    data: st.DataObject, count: int, seed: int
) -> None:
    rows = random_rows(count, 6, seed).double()
    drawn = data.draw(st.sets(st.integers(0, count - 1), min_size=2))
    candidates = torch.tensor(sorted(drawn))
    k = data.draw(st.integers(1, min(8, len(candidates) - 1)))
    cosine, index = ShardedFeatures(rows).nearest(torch.arange(count), k, candidates)
    for image in range(count):  # most of them no candidates themselves
        assert index[image].tolist() == others_by_cosine(rows, sorted(drawn), image)[:k]
    torch.testing.assert_close(cosines(rows, rows).gather(1, index), cosine)


def test_a_query_that_is_no_candidate_hides_no_other() -> None:
    rows = random_rows(9, 4).double()
    candidates = torch.tensor([1, 4, 5, 8])
    queries = torch.tensor([0, 3, 6, 7])  # before, between and beside the candidates
    _, index = ShardedFeatures(rows).nearest(queries, 3, candidates)
    _, free = nearest(rows[queries], rows[candidates], 3)
    assert torch.equal(index, candidates[free])


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
def test_features_in_half_precision_are_compared_in_single(narrow: torch.dtype) -> None:
    rows = random_rows(300, 32).to(narrow)
    cosine, index = nearest(rows, rows, 5, torch.arange(300))
    assert cosine.dtype == torch.float32
    expected = naive(rows.double(), rows.double(), 5, torch.arange(300))
    torch.testing.assert_close(cosine.double(), expected, rtol=0, atol=1e-6)
    found = cosines(rows, rows).gather(1, index)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_queries_in_single_precision_find_keys_in_half() -> None:
    queries, keys = random_rows(20, 16), random_rows(90, 16, seed=1).half()
    cosine, _ = nearest(queries, keys, 4)
    expected = cosines(queries, keys).sort(dim=1, descending=True).values[:, :4]
    torch.testing.assert_close(cosine.double(), expected, rtol=0, atol=1e-6)


def test_the_device_named_is_used_and_the_answer_is_where_the_queries_are() -> None:
    rows = random_rows(50, 8)
    here = nearest(rows, rows, 3, torch.arange(50))
    there = nearest(rows, rows, 3, torch.arange(50), device=torch.device("cpu"))
    assert torch.equal(here[0], there[0])
    assert torch.equal(here[1], there[1])
    assert there[1].device == rows.device


@pytest.mark.parametrize("keys_at_a_time", [1, 3, 7, 64])
def test_neighbors_are_gathered_from_blocks_with_fewer_keys_than_are_wanted(
    keys_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(20, 5).double()
    monkeypatch.setattr(exact, "_KEYS_AT_A_TIME", keys_at_a_time)
    cosine, index = nearest(rows, rows, 19)
    torch.testing.assert_close(cosine, naive(rows, rows, 19, None))
    torch.testing.assert_close(cosines(rows, rows).gather(1, index), cosine)


@pytest.mark.parametrize("keys_at_a_time", [1, 3, 7, 64])
def test_all_others_are_found_when_as_many_as_there_are_are_wanted(
    keys_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(20, 5).double()
    monkeypatch.setattr(exact, "_KEYS_AT_A_TIME", keys_at_a_time)
    _, index = nearest(rows, rows, 19, torch.arange(20))
    every = list(range(20))
    assert index.tolist() == [others_by_cosine(rows, every, image) for image in every]


def test_the_twins_of_an_image_are_found_before_others_and_itself_never() -> None:
    rows = random_rows(30, 8).double().repeat(4, 1)  # image i has the twins i + 30, i + 60, ...
    cosine, index = nearest(rows, rows, 3, torch.arange(120))
    for image, found in enumerate(index.tolist()):
        assert set(found) == set(range(image % 30, 120, 30)) - {image}
    torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_images_that_are_all_the_same_have_different_neighbors() -> None:
    _, index = nearest(torch.ones(200, 4), torch.ones(200, 4), 7, torch.arange(200))
    assert all(len({image, *found}) == 8 for image, found in enumerate(index.tolist()))


@settings(max_examples=60)
@given(
    count=st.integers(2, 300),
    k=st.integers(1, 9),
    keys_at_a_time=st.sampled_from([1, 5, 32, 130, 1000]),
    seed=st.integers(0, 1000),
)
def test_of_equally_similar_images_the_lower_number_comes_first(
    count: int, k: int, keys_at_a_time: int, seed: int
) -> None:
    # Of length 2 all, so that their cosines are exact and often the same.
    rows = random_rows(count, 4, seed).sign()
    k = min(k, count - 1)
    similarity = rows @ rows.T / 4
    similarity.fill_diagonal_(-2)
    cosine, index = similarity.sort(dim=1, descending=True, stable=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_KEYS_AT_A_TIME", keys_at_a_time)
        found = nearest(rows, rows, k, torch.arange(count))
    assert torch.equal(found[0], cosine[:, :k])
    assert torch.equal(found[1], index[:, :k])


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="other libraries may round")
@pytest.mark.parametrize("width", [3, 64, 500])
def test_how_many_are_asked_about_changes_no_bit(width: int) -> None:
    rows = random_rows(900, width)
    cosine, index = nearest(rows, rows, 5, torch.arange(900))
    for asked in (1, 2, 5, 15, 16, 17, 31, 299, 898):
        some = torch.arange(900 - asked, 900)
        one, other = nearest(rows[some], rows, 5, some)
        assert torch.equal(one, cosine[some])
        assert torch.equal(other, index[some])


@pytest.mark.parametrize("count", [132, 133, 134])
def test_the_last_block_of_candidates_may_be_smaller_than_k(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "_KEYS_AT_A_TIME", 130)
    rows = random_rows(200, 6).double()
    candidates = torch.arange(count)
    _, index = ShardedFeatures(rows).nearest(candidates, 4, candidates)
    _, expected = nearest(rows[:count], rows[:count], 4, candidates)
    assert torch.equal(index, expected)
