"""Scaling of images of more than 8 bits to bytes."""

from typing import Any

import numpy as np
from PIL import Image

Levels = tuple[tuple[float, float], ...]
"""Values that become black and white: one pair for all channels, or one for each. Without any, the
range of each file's type is used."""

_ROWS_AT_ONCE = 256


def described_levels(levels: Levels) -> str:
    """Return the range in words.

    >>> described_levels(((12, 3980), (0.5, 1.25)))
    '12 and 3,980 for channel 1, 0.5 and 1.25 for channel 2'
    """
    pairs = [f"{black:,.6g} and {white:,.6g}" for black, white in levels]
    if len(pairs) > 1:
        pairs = [f"{pair} for channel {number}" for number, pair in enumerate(pairs, 1)]
    return ", ".join(pairs)


def is_deep(image: Image.Image) -> bool:
    """Return whether the pixels are numbers of more than 8 bits."""
    return image.mode[0] in "IF"


def to_bytes(image: Image.Image, levels: Levels = (), channel: int = 0) -> Image.Image:
    """Scale gray of 16 or 32 bits to 8 bits; PIL's `convert` would clip it at 255."""
    values = np.asarray(image)
    if values.dtype.kind == "f":
        values = np.nan_to_num(values)
    black, white = levels[channel % len(levels)] if levels else _range_of_type(image, values)
    gray = np.empty(values.shape, np.uint8)
    for top in range(0, len(values), _ROWS_AT_ONCE):  # as floats, a large image takes gigabytes
        rows = slice(top, top + _ROWS_AT_ONCE)
        above = values[rows].clip(black, white).astype(np.float64) - black
        gray[rows] = above * (255 / (white - black))
    return Image.fromarray(gray)


def _range_of_type(image: Image.Image, values: Any) -> tuple[float, float]:
    highest = float(values.max(initial=0))
    white = next((float(w) for w in (1, 255, 65535) if highest <= w), highest)
    if image.mode.startswith("I"):
        white = max(white, 255 if image.mode == "I" else 65535)  # a dark image stays dark
    return 0.0, white
