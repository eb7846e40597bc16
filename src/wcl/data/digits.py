"""scikit-learn's 1,797 handwritten digits, which are installed with it."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

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
    # The file itself, because importing scikit-learn takes longer than importing torch.
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    gray = table[:, :64].view(-1, 1, 8, 8) * (255 / 16)
    pixels = F.interpolate(gray, (32, 32), mode="bilinear", align_corners=False)
    return ArraySource(
        "digits",
        pixels.round().clamp(0, 255).to(torch.uint8),
        table[:, 64].long(),
        tuple(str(digit) for digit in range(10)),
    )
