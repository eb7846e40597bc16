"""scikit-learn's 1,797 handwritten digits, which are installed with it."""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F

from wcl.data.source import ArraySource, Source, subset
from wcl.ops.randomness import seed_of

_TEST = 500


def digits(split: str) -> Source:
    """Open the digits, 8×8 resized to 32×32, one channel; 1,297 for training and 500 for test."""
    images = _all_digits()
    order = np.random.default_rng(seed_of("digits")).permutation(len(images))
    chosen = order[:_TEST] if split == "test" else order[_TEST:]
    return subset(images, np.sort(chosen).astype(np.int64))


@cache  # `subset` copies it, so callers cannot change it
def _all_digits() -> ArraySource:
    from sklearn.datasets import load_digits

    data = load_digits()
    gray = torch.from_numpy(data.images).float()[:, None] * (255 / 16)
    pixels = F.interpolate(gray, (32, 32), mode="bilinear", align_corners=False)
    return ArraySource(
        "digits",
        pixels.round().clamp(0, 255).to(torch.uint8),
        torch.from_numpy(data.target).long(),
        tuple(str(digit) for digit in range(10)),
    )
