"""Margins of error against closed forms, statistics packages and simulation."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score

from wcl.evaluation.svm import average_precision_without_each, mean_average_precision
from wcl.evaluation.uncertainty import Z, accuracy, independent_margin, interval, margin


@pytest.mark.parametrize(("right", "images"), [(0, 4), (3, 4), (4, 4), (465, 500), (50, 10_000)])
def test_the_interval_of_an_accuracy_is_wilsons(right: int, images: int) -> None:
    found = interval(accuracy(torch.arange(images) < right))
    expected = binomtest(right, images).proportion_ci(method="wilson")
    assert found == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_the_margin_of_a_difference_is_that_of_bonett_and_price() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 300, generator=generator) < torch.tensor([[0.8], [0.7]])
    n, only_first, only_second = 302, int((first & ~second).sum()), int((second & ~first).sum())
    p, q = (only_first + 1) / n, (only_second + 1) / n
    expected = Z * np.sqrt((p + q - (p - q) ** 2) / n)
    assert margin(accuracy(first), accuracy(second)) == pytest.approx(expected)
    assert margin(accuracy(first), accuracy(first)) > 0


def test_a_margin_on_the_same_images_is_below_its_bound_if_errors_agree() -> None:
    first = torch.arange(400) < 300
    second = torch.arange(400) < 280
    assert margin(accuracy(first), accuracy(second)) < independent_margin(0.75, 0.7, 400)


def test_intervals_over_draws_and_images_cover_the_truth() -> None:
    """Accuracies that differ by draw and by image: 95% of the intervals should hold their mean."""
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(300):
        draws = 0.05 * torch.randn(5, 1, generator=generator)
        images = 0.15 * torch.randn(1, 200, generator=generator)
        correct = torch.rand(5, 200, generator=generator) < 0.7 + draws + images
        low, high = interval(accuracy(correct))
        covered += low < 0.7 < high
    assert 0.88 < covered / 300 < 0.99


def test_average_precision_without_each_image_is_that_of_the_others() -> None:
    generator = np.random.default_rng(0)
    scores, positive = generator.normal(size=40), generator.random(40) < 0.3
    found = average_precision_without_each(scores, positive)
    for image in range(40):
        rest = np.arange(40) != image
        expected = average_precision_score(positive[rest], scores[rest])
        assert found[image] == pytest.approx(expected)
    alone = np.arange(5) == 2
    assert average_precision_without_each(scores[:5], alone)[2] == pytest.approx(
        average_precision_score(alone, scores[:5])
    )


def test_the_error_of_a_mean_average_precision_is_that_of_the_bootstrap() -> None:
    generator = np.random.default_rng(0)
    labels = (generator.random((400, 3)) < 0.3).astype(np.int8)
    scores = labels + generator.normal(size=labels.shape)
    figure = mean_average_precision(scores, labels)
    low, high = interval(figure)
    assert low < figure.score < high
    again = [
        mean_average_precision(scores[rows], labels[rows]).score
        for rows in generator.integers(0, 400, (200, 400))
    ]
    assert (high - low) / 2 == pytest.approx(Z * np.std(again), rel=0.2)
