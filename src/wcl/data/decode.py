"""Decode images: open them, cut views out of them, crop their center."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from wcl.ops.randomness import Integers
from wcl.system.errors import RunError

_EXIF_ORIENTATION = 0x0112
_ROWS_REVERSED, _COLUMNS_REVERSED = (3, 4, 7, 8), (2, 3, 6, 7)
# PIL knows forty more formats, but photos are rarely stored in them, and some are dangerous: EPS is
# a programming language, which PIL passes to another program to run.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "MPO", "AVIF", "JPEG2000")
_ROWS_AT_ONCE = 256
# PIL's readers compute with the values of a damaged file and raise whatever follows: OSError,
# ValueError, SyntaxError, for one in two thousand damaged TIFFs TypeError. None may end a run.
_DAMAGED = Exception


class UnreadableImage(RunError):
    """An image that cannot be decoded, and the reason."""


def open_image(where: Path | bytes) -> Image.Image:
    """Open an image without decoding it.

    Raises:
        UnreadableImage: it is missing, or not an image.
    """
    try:
        if isinstance(where, Path) and where.exists() and not where.is_file():
            raise UnreadableImage("not a file")  # reading a pipe would block
        file = io.BytesIO(where) if isinstance(where, bytes) else where
        return Image.open(file, formats=_formats())
    except FileNotFoundError as error:
        raise UnreadableImage("no such file") from error
    except UnidentifiedImageError as error:
        raise UnreadableImage("not an image") from error
    except _DAMAGED as error:
        raise UnreadableImage(str(error) or type(error).__name__) from error


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that this build of PIL can read."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def decoded(image: Image.Image, channels: int = 3) -> Image.Image:
    """Decode an image, turned upright by its EXIF orientation, to RGB or to gray (one channel).

    Raises:
        UnreadableImage: it is truncated or damaged.
    """
    try:
        if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        if image.mode[0] in "IF":
            image = _scaled_to_bytes(image)
        return image.convert("L" if channels == 1 else "RGB")
    except _DAMAGED as error:
        raise UnreadableImage(str(error) or type(error).__name__) from error


def _scaled_to_bytes(image: Image.Image) -> Image.Image:
    """Scale gray of 16 or 32 bits to 8 bits; `convert` would clip it at 255."""
    levels = np.asarray(image)
    if levels.dtype.kind == "f":
        levels = np.nan_to_num(levels)
    highest = float(levels.max(initial=0))
    white = next((float(w) for w in (1, 255, 65535) if highest <= w), highest)
    if image.mode.startswith("I"):
        white = max(white, 255 if image.mode == "I" else 65535)  # a dark image stays dark
    gray = np.empty(levels.shape, np.uint8)
    for top in range(0, len(levels), _ROWS_AT_ONCE):  # as floats, a large image takes gigabytes
        rows = slice(top, top + _ROWS_AT_ONCE)
        gray[rows] = levels[rows].clip(0, white).astype(np.float64) * (255 / white)
    return Image.fromarray(gray)


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the (height, width) of the decoded image, from its header if possible.

    Raises:
        UnreadableImage: it is damaged (a PNG may store its EXIF data after the pixels).
    """
    width, height = image.size
    try:
        turned = image.getexif().get(_EXIF_ORIENTATION, 1) in (5, 6, 7, 8)
    except _DAMAGED as error:
        raise UnreadableImage(str(error) or type(error).__name__) from error
    return (width, height) if turned else (height, width)


@dataclass(frozen=True)
class ReducedImage:
    """A decoded image, perhaps at a fraction of its size."""

    pixels: Image.Image
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


def reduced(image: Image.Image, factor: float, channels: int = 3) -> ReducedImage:
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
    turn = image.getexif().get(_EXIF_ORIENTATION, 1)
    turned = turn in _ROWS_REVERSED, turn in _COLUMNS_REVERSED
    return ReducedImage(decoded(image, channels), full_size, smaller, turned)


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


def _cut(
    whole: Image.Image, left: float, top: float, right: float, bottom: float, size: int
) -> Tensor:
    # Crop first: with only a box, the filter of `resize` reaches pixels outside of the box.
    x, y = math.floor(left), math.floor(top)
    crop = whole.crop((x, y, math.ceil(right), math.ceil(bottom)))
    box = (left - x, top - y, right - x, bottom - y)
    return _pixels(crop.resize((size, size), Image.Resampling.BILINEAR, box))


def center_crop(image: Image.Image, size: int, channels: int = 3) -> Tensor:
    """Return the center of an image for evaluation, as bytes: (C, size, size).

    The shorter side is resized to 8/7 of `size` (256 for 224), and the center is cropped. For a
    `size` below 96 it is resized to `size` itself; an image of that size is not resized at all.
    """
    shorter = round(size * 8 / 7) if size >= 96 else size
    height, width = upright_size(image)
    if (height, width) == (size, size):
        return _pixels(decoded(image, channels))
    least = min(height, width)
    if least >= 2 * shorter:
        image.draft(None, (shorter * image.width // least, shorter * image.height // least))
    whole = _without_far_ends(decoded(image, channels))
    scale = shorter / min(whole.size)
    whole = whole.resize(
        (max(size, round(whole.width * scale)), max(size, round(whole.height * scale))),
        Image.Resampling.BILINEAR,
    )
    left, top = (whole.width - size) // 2, (whole.height - size) // 2
    return _pixels(whole.crop((left, top, left + size, top + size)))


def _without_far_ends(image: Image.Image) -> Image.Image:
    """Crop an image to the middle if it is more than four times as long as it is wide.

    Otherwise a strip of 30,000×1 pixels would be enlarged to gigabytes before it is cropped.
    """
    longest = 4 * min(image.size)
    width, height = min(image.width, longest), min(image.height, longest)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def whole_pixels(image: Image.Image, channels: int = 3) -> Tensor:
    """Return all pixels of an image as bytes: (C, H, W)."""
    return _pixels(decoded(image, channels))


def _pixels(image: Image.Image) -> Tensor:
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())
