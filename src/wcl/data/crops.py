"""Cut the crops of views out of images, which are decoded no larger than the crops need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from wcl.data.decode import EXIF_ORIENTATION, decoded, upright_size
from wcl.data.levels import Levels
from wcl.data.planes import Picture
from wcl.data.resize import resized
from wcl.ops.randomness import Integers

_ROWS_REVERSED, _COLUMNS_REVERSED = (3, 4, 7, 8), (2, 3, 6, 7)


@dataclass(frozen=True)
class ReducedImage:
    """A decoded image, perhaps at a fraction of its size."""

    pixels: Picture
    full_size: tuple[int, int]
    """(height, width) at full scale, which boxes refer to."""
    factor: int = 1
    """By how much it is smaller."""
    reversed: tuple[bool, bool] = (False, False)
    """Whether turning it upright reversed its rows, and its columns."""

    def place(self, axis: int, position: float) -> float:
        """Convert a full-scale position along an axis (0 vertical, 1 horizontal) to this scale.

        If the factor does not divide a side, the last pixel covers only the remainder; it is the
        first pixel if the side was reversed.
        """
        length = self.pixels.size[1 - axis]
        missing = length - self.full_size[axis] / self.factor if self.reversed[axis] else 0.0
        return min(max(position / self.factor + missing, 0.0), length)

    @property
    def bytes(self) -> int:
        return self.pixels.width * self.pixels.height * len(self.pixels.getbands())


def reduction(boxes: Integers, sizes: Sequence[int]) -> float:
    """Return the largest factor of reduction at which none of these crops is enlarged."""
    return float((boxes[:, 2:].min(axis=1) / np.array(sizes)).min())


def reduced(image: Picture, factor: float, channels: int = 3, levels: Levels = ()) -> ReducedImage:
    """Decode an image; a JPEG at 1/2, 1/4 or 1/8 of its size if `factor` allows.

    This saves most of the time that a large photo takes.

    Raises:
        UnreadableImage: it is truncated or damaged.
    """
    full_size = upright_size(image)
    stored_width = image.width
    if factor >= 2:
        # PIL picks the strongest of 1/2, 1/4, 1/8 that leaves both sides at least this long.
        image.draft(None, (int(image.width / factor), int(image.height / factor)))
    smaller = round(stored_width / image.width)
    turn = image.getexif().get(EXIF_ORIENTATION, 1)
    turned = turn in _ROWS_REVERSED, turn in _COLUMNS_REVERSED
    return ReducedImage(decoded(image, channels, levels), full_size, smaller, turned)


def cut_boxes(image: ReducedImage, boxes: Integers, sizes: Sequence[int]) -> list[Tensor]:
    """Cut resized crops out of an image.

    Args:
        image: from `reduced`.
        boxes: (n, 4) top, left, height, width at full scale.
        sizes: height and width of each result.

    Returns:
        One (C, size, size) tensor of bytes per box.
    """
    return [
        _cut(
            image.pixels,
            image.place(1, left),
            image.place(0, top),
            image.place(1, left + width),
            image.place(0, top + height),
            size,
        )
        for (top, left, height, width), size in zip(boxes.tolist(), sizes, strict=True)
    ]


def _cut(whole: Picture, left: float, top: float, right: float, bottom: float, size: int) -> Tensor:
    # Crop first: with only a box, the filter of `resize` reaches pixels outside of the box.
    x, y = math.floor(left), math.floor(top)
    crop = whole.crop((x, y, math.ceil(right), math.ceil(bottom)))
    box = (left - x, top - y, right - x, bottom - y)
    return resized(crop, size, box)
