"""Prototypes: k-means, concentrations against a loop, and images without a cluster."""

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import normal
from together import together
from wcl.distributed.world import World
from wcl.methods.prototypes import Prototypes, concentration, kmeans


def two_heaps(count: int = 20) -> Tensor:
    """Unit vectors around two directions, which alternate."""
    rows = 0.1 * normal(0, count, 5)
    rows[::2, 0] += 1
    rows[1::2, 1] += 1
    return F.normalize(rows, dim=1)


def concentration_by_loop(distances: Tensor, clusters: Tensor, count: int, mean: float) -> Tensor:
    found = []
    for cluster in range(count):
        of_cluster = [float(d) for d, c in zip(distances, clusters, strict=True) if c == cluster]
        size = len(of_cluster)
        found.append(sum(of_cluster) / (size * math.log(size + 10)) if size > 1 else 0.0)
    sizes = clusters.bincount(minlength=count)
    values = np.array(
        [max(found) if size < 2 else phi for size, phi in zip(sizes, found, strict=True)]
    )
    values = values.clip(np.percentile(values, 10), np.percentile(values, 90))
    return torch.from_numpy(mean * values / values.mean()).float()


def test_kmeans_finds_the_heaps_and_their_distances() -> None:
    rows = two_heaps().float()
    centers, distances, clusters = kmeans(rows, 2)
    assert (clusters[::2] == clusters[0]).all() and (clusters[1::2] == 1 - clusters[0]).all()
    torch.testing.assert_close(centers[clusters[0]], rows[::2].mean(dim=0))
    torch.testing.assert_close(distances, (rows - centers[clusters]).norm(dim=1), atol=1e-3, rtol=0)
    for again, first in zip(kmeans(rows, 2), (centers, distances, clusters), strict=True):
        assert torch.equal(again, first)


def test_concentrations_are_their_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    clusters = torch.cat([torch.randint(9, (60,), generator=generator), torch.tensor([9])])
    distances = torch.rand(61, generator=generator)
    distances[-1] = 0  # a cluster of one image, at its center
    found = concentration(distances, clusters, 10, 0.2)
    torch.testing.assert_close(found, concentration_by_loop(distances, clusters, 10, 0.2))


def test_concentrations_of_duplicates_are_above_zero() -> None:
    clusters = torch.arange(20) % 4
    torch.testing.assert_close(
        concentration(torch.zeros(20), clusters, 4, 0.2), torch.full((4,), 0.2)
    )
    some = concentration((clusters > 1).float(), clusters, 4, 0.2)
    assert (some > 0).all() and some.isfinite().all()


def prototypes_of(seen: Tensor, clusters: int = 2) -> Prototypes:
    prototypes = Prototypes(20, clusters, 5).double()
    prototypes.update(two_heaps(), seen, 0.2, World())
    return prototypes


def test_the_loss_is_its_definition_and_images_without_a_cluster_add_nothing() -> None:
    seen = torch.arange(20) != 3
    prototypes = prototypes_of(seen)
    torch.testing.assert_close(prototypes.centers.norm(dim=1), torch.ones(2, dtype=torch.float64))
    assert int(prototypes.assignments[3]) == -1
    q, images = F.normalize(normal(1, 6, 5), dim=1), torch.tensor([0, 1, 3, 4, 7, 19])
    found = prototypes.losses(q, images)
    for query, image, loss in zip(q, images, found, strict=True):
        logits = torch.stack(
            [
                query @ c / phi
                for c, phi in zip(prototypes.centers, prototypes.concentrations, strict=True)
            ]
        )
        own = int(prototypes.assignments[image])
        expected = -torch.log_softmax(logits, dim=0)[own] if own >= 0 else torch.zeros_like(loss)
        torch.testing.assert_close(loss, expected)


def test_one_cluster_costs_nothing() -> None:
    prototypes = prototypes_of(torch.ones(20, dtype=torch.bool), clusters=1)
    found = prototypes.losses(two_heaps(), torch.arange(20))
    torch.testing.assert_close(found, torch.zeros(20, dtype=torch.float64))


def test_equal_features_have_a_finite_loss() -> None:
    prototypes = Prototypes(20, 3, 5).double()
    equal = F.normalize(torch.ones(20, 5, dtype=torch.float64), dim=1)
    prototypes.update(equal, torch.ones(20, dtype=torch.bool), 0.2, World())
    assert prototypes.losses(equal, torch.arange(20)).isfinite().all()


def test_too_few_images_for_the_clusters_leave_them_as_they_are() -> None:
    prototypes = prototypes_of(torch.arange(20) < 2, clusters=3)
    assert (prototypes.assignments == -1).all() and not prototypes.centers.any()


def clusters_here(world: World) -> list[Tensor]:
    prototypes = Prototypes(20, 3, 5)
    # Rank 1 has other features: only those of rank 0 count.
    features = two_heaps().float() if world.is_rank_zero else normal(7, 20, 5).float()
    prototypes.update(features, torch.ones(20, dtype=torch.bool), 0.2, world)
    return list(prototypes.buffers())


def test_all_processes_have_the_clusters_of_the_first(tmp_path: Path) -> None:
    alone = clusters_here(World())
    for found in together(2, tmp_path, clusters_here):
        assert all(torch.equal(one, other) for one, other in zip(alone, found, strict=True))
