"""Agreement of two representations against naive loops and scikit-learn."""

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from wcl.ops.agreement import neighbor_agreement, rand_index, retrieval


def two_views(
    count: int = 30, seed: int = 0, noise: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    noises = torch.randn(2, 30, 5, generator=generator, dtype=torch.float64)
    first, second = images + noise * noises
    return first, second


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def test_retrieval_equals_a_naive_loop() -> None:
    queries, keys = two_views()
    ranks = [
        1 + sum(cosine(query, key) > cosine(query, keys[i]) for key in keys)
        for i, query in enumerate(queries)
    ]
    found = retrieval(queries, keys)
    assert 1 < max(ranks) < 30
    assert float(found["retrieval_top1"]) == pytest.approx(ranks.count(1) / 30)
    assert float(found["retrieval_mrr"]) == pytest.approx(sum(1 / rank for rank in ranks) / 30)


def test_equal_features_retrieve_nothing() -> None:
    constant = torch.ones(20, 3)
    found = retrieval(constant, constant)
    assert float(found["retrieval_top1"]) == 0
    assert float(found["retrieval_mrr"]) == pytest.approx(1 / 20)


def test_neighbor_agreement_equals_a_naive_loop() -> None:
    shared = 0
    views = two_views(noise=0.5)
    for i in range(30):
        sets = []
        for view in views:
            others = sorted(
                (j for j in range(30) if j != i), key=lambda j: -cosine(view[i], view[j])
            )
            sets.append(set(others[:4]))
        shared += len(sets[0] & sets[1])
    assert float(neighbor_agreement(*views, k=4)) == pytest.approx(shared / 120)


def test_neighbors_of_unrelated_features_agree_by_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 500, 16, generator=generator)
    assert float(neighbor_agreement(first, second)) == pytest.approx(10 / 499, rel=0.2)
    assert float(neighbor_agreement(first, 3 * first)) == 1


@pytest.mark.parametrize("groups", [(3, 4), (1, 5), (10, 10), (1, 1)])
def test_the_rand_index_equals_scikit_learns(groups: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(sum(groups))
    first, second = (torch.randint(0, 7 * n, (60,), generator=generator) // 7 for n in groups)
    second = torch.where(torch.arange(60) < 30, first, second)
    expected = adjusted_rand_score(first.numpy(), second.numpy())
    assert float(rand_index(first, second)) == pytest.approx(expected)
    assert float(rand_index(first, first + 100)) == 1
