"""Groups by links against disjoint sets, and the hierarchy against naive nearest neighbors."""

import pytest
import torch
import torch.nn.functional as F

from wcl.neighbors.groups import centers, hierarchy, linked_groups, merged, silhouette
from wcl.ops.weak_labels import weak_labels


def disjoint_sets(links: list[list[int]], count: int) -> list[set[int]]:
    sets = [{i} for i in range(count)]
    for i, j in links:
        union = sets[i] | sets[j]
        for member in union:
            sets[member] = union
    return [group for i, group in enumerate(sets) if len(group) > 1 and min(group) == i]


@pytest.mark.parametrize("seed", range(5))
def test_linked_groups_are_those_of_disjoint_sets(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    links = torch.randint(60, (25, 2), generator=generator)
    links = links[links[:, 0] != links[:, 1]]
    found = linked_groups(links, 60)
    assert sorted(found) == sorted(map(sorted, disjoint_sets(links.tolist(), 60)))
    assert linked_groups(links[:0], 60) == []


def partition(labels: torch.Tensor) -> set[frozenset[int]]:
    return {frozenset((labels == label).nonzero()[:, 0].tolist()) for label in labels.unique()}


def test_every_level_is_the_weak_labels_of_the_centers_before_it() -> None:
    features = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    levels = hierarchy(features)
    assert len(levels) > 2
    before, points = torch.arange(300), features
    for level in levels:
        expected = weak_labels(points)[before]
        assert partition(level) == partition(expected)
        assert set(level.tolist()) == set(range(int(level.max()) + 1))
        assert min(map(len, partition(level))) >= 2
        before = level
        points = torch.stack(
            [F.normalize(features, dim=1)[level == i].mean(dim=0) for i in level.unique()]
        )
        torch.testing.assert_close(centers(features, level), F.normalize(points, dim=1))


def test_blobs_are_found_at_the_level_of_the_best_silhouette_and_by_merging() -> None:
    generator = torch.Generator().manual_seed(1)
    blobs = torch.randn(6, 20, generator=generator).repeat_interleave(30, dim=0)
    features = blobs + 0.15 * torch.randn(180, 20, generator=generator)
    truth = partition(torch.arange(6).repeat_interleave(30))
    levels = hierarchy(features)
    assert partition(merged(features, levels[0], 6)) == truth
    best = max(levels, key=lambda level: silhouette(features, level))
    assert silhouette(features, best) == max(silhouette(features, level) for level in levels)
    assert len(partition(merged(features, levels[0], 3))) == 3


def test_few_rows_have_no_levels() -> None:
    assert hierarchy(torch.randn(1, 3)) == []
    assert hierarchy(torch.randn(2, 3)) == []
    assert hierarchy(torch.ones(3, 3)) == []
    assert silhouette(torch.randn(2, 3), torch.tensor([0, 1])) == -1
