"""Margins of error, at a confidence of 95%.

A figure is a mean over test images and, where labeled images are drawn several times, over draws.
It is uncertain in both respects: other test images, and other labeled images, would give another
one.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

Z = NormalDist().inv_cdf(0.975)


class Figure(NamedTuple):
    """A score, and what every test image contributes to it."""

    score: float
    contributions: Tensor
    """(draws, images): for an accuracy, whether the image is classified correctly; for a mean
    average precision, its jackknife pseudo-value. The mean is the score, or close to it."""


def accuracy(correct: Tensor) -> Figure:
    """Return the accuracy of (draws, images) or (images,) predictions."""
    contributions = correct.reshape(-1, correct.shape[-1]).float().cpu()
    return Figure(float(contributions.double().mean()), contributions)


def interval(figure: Figure) -> tuple[float, float]:
    """Return Wilson's interval of a score.

    The number of test images is replaced by that of independent ones with the same standard error,
    which is the same for an accuracy of one draw.
    """
    score, count = figure.score, figure.contributions.shape[1]
    variance = _variance(figure.contributions)
    spread = score * (1 - score)
    n = spread / variance if spread > 0 and variance > 0 else count
    center = (score + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(max(0.0, spread) / n + (Z / (2 * n)) ** 2)
    return max(0.0, center - half), min(1.0, center + half)


def margin(first: Figure, second: Figure) -> float:
    """Return the margin of error of the difference of two scores on the same images and draws.

    For accuracies of one draw it is the interval of Bonett and Price (2012) for paired proportions,
    which adds an image in favor of each, so that a few images on which both agree prove nothing.
    """
    difference = first.contributions - second.contributions
    both = torch.tensor([1.0, -1.0]).expand(len(difference), 2)
    return Z * math.sqrt(_variance(torch.cat([difference, both], dim=1)))


def independent_margin(first: float, second: float, images: int) -> float:
    """Return an upper bound of `margin` for accuracies whose predictions are not known.

    On the same images the errors are correlated, which makes the margin smaller.
    """
    variances = [max(p * (1 - p), 0.25 / images) for p in (first, second)]
    return Z * math.sqrt(sum(variances) / images)


def _variance(contributions: Tensor) -> float:
    """Return the squared standard error of the mean: of the images and of the draws."""
    draws, images = contributions.shape
    variance = contributions.mean(dim=0).var(correction=0) / images
    if draws > 1:
        variance += contributions.mean(dim=1).var() / draws
    return float(variance)
