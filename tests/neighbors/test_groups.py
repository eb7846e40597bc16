"""Linked groups against a naive disjoint set."""

import pytest
import torch
import torch.nn.functional as F

from naive_groups import disjoint_sets
from wcl.neighbors import groups
from wcl.neighbors.groups import linked_groups


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_of_a_disjoint_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(150, 3, generator=generator)
    features[90:100] = features[3]
    # Blocks and the number of links that are kept are small, so that all of it is met.
    monkeypatch.setattr(groups, "_ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(groups, "_COLUMNS_AT_A_TIME", 16)
    monkeypatch.setattr(groups, "_MAX_LINKS", 20)
    for threshold in (0.5, 0.99, 0.998, 1.0):
        labels, highest = linked_groups(features, threshold)
        found = [set((labels == label).nonzero()[0].tolist()) for label in sorted(set(labels))]
        found = [group for group in found if len(group) > 1]
        expected = disjoint_sets(features, threshold - 1e-6)
        assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
        unit = F.normalize(features, dim=1)
        nearest = (unit @ unit.T).fill_diagonal_(-1).amax(dim=1).clamp(max=1)
        reached = nearest >= threshold - 1e-6
        torch.testing.assert_close(highest, torch.where(reached, nearest, -1.0))


def test_thousands_of_equal_rows_are_one_group() -> None:
    labels, highest = linked_groups(torch.ones(5000, 2), 1.0)
    assert set(labels.tolist()) == {0}
    assert (highest > 0.999).all()
