"""Sinkhorn assignments against a loop and against what they must add up to."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_losses import normal, seeds
from wcl.ops.sinkhorn import sinkhorn


@given(seeds, st.integers(1, 7), st.integers(1, 5), st.integers(1, 4))
@settings(deadline=None, max_examples=25)
def test_columns_and_rows_are_scaled_in_turns(
    seed: int, rows: int, columns: int, iterations: int
) -> None:
    scores = normal(seed, rows, columns)
    q = [[float(torch.exp(value / 0.5)) for value in row] for row in scores]
    for _ in range(iterations):
        sums = [sum(row[k] for row in q) for k in range(columns)]
        q = [[value / sums[k] * rows / columns for k, value in enumerate(row)] for row in q]
        q = [[value / sum(row) for value in row] for row in q]
    expected = torch.tensor(q, dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(scores, 0.5, iterations), expected)


def test_many_iterations_use_all_columns_equally() -> None:
    found = sinkhorn(normal(0, 12, 4), 0.3, 200)
    torch.testing.assert_close(found.sum(dim=0), torch.full((4,), 3.0, dtype=torch.float64))
    torch.testing.assert_close(found.sum(dim=1), torch.ones(12, dtype=torch.float64))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3])
def test_a_tiny_epsilon_gives_hard_assignments_and_no_nan(epsilon: float) -> None:
    found = sinkhorn(normal(0, 6, 3).float(), epsilon)
    torch.testing.assert_close(found.amax(dim=1), torch.ones(6))


@pytest.mark.parametrize("offset", [-1e3, 1e3])
def test_scores_of_any_size_stay_finite(offset: float) -> None:
    scores = normal(0, 6, 3)
    torch.testing.assert_close(sinkhorn(scores + offset, 0.3), sinkhorn(scores, 0.3))
