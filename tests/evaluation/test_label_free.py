"""Label-free figures of features whose structure is known."""

import pytest
import torch

from wcl.evaluation.label_free import FIGURES, label_free
from wcl.ops.weak_labels import weak_labels


def pairs(noise: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(300, 16, generator=generator)
    return images + noise * torch.randn(2, 300, 16, generator=generator)


def test_equal_views_agree_in_everything() -> None:
    figures = label_free(pairs(0))
    agreement = ("retrieval_top1", "retrieval_mrr", "neighbor_agreement", "group_stability")
    assert [figures[name] for name in agreement] == [1, 1, 1, 1]
    assert figures["alignment"] == 0


def test_agreement_falls_with_the_difference_of_the_views() -> None:
    figures = [label_free(pairs(noise)) for noise in (0.1, 0.5, 2.0)]
    for name in ("retrieval_mrr", "neighbor_agreement", "group_stability"):
        values = [each[name] for each in figures]
        assert values == sorted(values, reverse=True) and values[0] > values[-1]


def test_the_largest_group_is_counted_in_batches_of_256() -> None:
    views = pairs(0.1)
    sizes = [part.bincount().max() / len(part) for part in map(weak_labels, views[0].split(256))]
    assert label_free(views, ("largest_group",)) == pytest.approx(
        {"largest_group": float(sum(sizes) / 2)}
    )


def test_collapsed_features_have_figures_too() -> None:
    figures = label_free(torch.ones(2, 50, 8))
    assert figures.keys() == FIGURES.keys()
    assert figures["retrieval_top1"] == 0 and figures["rankme"] == pytest.approx(1, abs=1e-3)
