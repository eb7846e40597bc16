"""Decode images: open them, convert them to bytes, crop their center."""

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

from wcl.data.heif import is_heif, register_heif
from wcl.data.levels import Levels, is_deep, to_bytes
from wcl.data.planes import Picture, Planes
from wcl.data.tiff import is_tiff, pil_reads_all, read_planes
from wcl.system.errors import RunError

EXIF_ORIENTATION = 0x0112
# PIL knows forty more formats, but photos are rarely stored in them, and some are dangerous: EPS is
# a programming language, which PIL passes to another program to run.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "MPO", "AVIF", "JPEG2000")
# PIL's readers compute with the values of a damaged file and raise whatever follows: OSError,
# ValueError, SyntaxError, for one in two thousand damaged TIFFs TypeError. None may end a run.
_DAMAGED = Exception
_HEAD = 12  # bytes by which the formats that PIL does not read alone are recognized


class UnreadableImage(RunError):
    """An image that cannot be decoded, and the reason."""


class MissingPackage(UnreadableImage):
    """An image that cannot be decoded until another package is installed."""


def open_image(where: Path | bytes) -> Picture:
    """Open an image; those of PIL are not decoded yet.

    Raises:
        UnreadableImage: it is missing, or not an image.
        MissingPackage: its format needs a package that is not installed.
    """
    try:
        if isinstance(where, Path) and where.exists() and not where.is_file():
            raise UnreadableImage("not a file")  # reading a pipe would block
        return _opened(where)
    except FileNotFoundError as error:
        raise UnreadableImage("no such file") from error
    except UnidentifiedImageError as error:
        raise UnreadableImage("not an image") from error
    except ModuleNotFoundError as error:
        extra = "heif" if error.name == "pillow_heif" else "tiff"
        raise MissingPackage(f"needs {error.name}; pip install 'wcl-torch[{extra}]'") from error
    except _DAMAGED as error:
        raise _unreadable(error) from error


def _opened(where: Path | bytes) -> Picture:
    try:
        image = Image.open(_file(where), formats=_formats())
    except UnidentifiedImageError:
        head = _head(where)
        if is_heif(head):
            register_heif()
            return Image.open(_file(where), formats=("HEIF",))
        if is_tiff(head):
            return read_planes(where)
        raise
    if isinstance(image, TiffImageFile) and not pil_reads_all(image.tag_v2):
        image.close()
        return read_planes(where)
    return image


def _file(where: Path | bytes) -> Path | io.BytesIO:
    return io.BytesIO(where) if isinstance(where, bytes) else where


def _head(where: Path | bytes) -> bytes:
    if isinstance(where, bytes):
        return where[:_HEAD]
    with where.open("rb") as file:
        return file.read(_HEAD)


def _unreadable(error: Exception) -> UnreadableImage:
    """Return the reason in one line."""
    return UnreadableImage((str(error).splitlines() or [type(error).__name__])[0])


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that this build of PIL can read."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def decoded(image: Picture, channels: int = 3, levels: Levels = ()) -> Picture:
    """Decode an image to bytes, turned upright by its EXIF orientation.

    Args:
        image: from `open_image`.
        channels: 3 for RGB and 1 for gray, to which images of PIL are converted; or the number that
            the image has.
        levels: range of the values of images of more than 8 bits.

    Raises:
        UnreadableImage: it is truncated or damaged, or has other channels.
    """
    if channel_count(image) != (3 if channels == 1 else channels):
        raise UnreadableImage(f"has {channel_count(image)} channels, not {channels}")
    try:
        if isinstance(image, Planes):
            planes = [_to_bytes(plane, levels, n) for n, plane in enumerate(image.channels)]
            if channels not in (1, 3):
                return Planes(planes)
            whole = Planes(planes).shown()
        else:
            if image.getexif().get(EXIF_ORIENTATION, 1) != 1:
                image = ImageOps.exif_transpose(image)
            whole = _to_bytes(image, levels)
        return whole.convert("L" if channels == 1 else "RGB")
    except _DAMAGED as error:
        raise _unreadable(error) from error


def _to_bytes(image: Image.Image, levels: Levels, channel: int = 0) -> Image.Image:
    return to_bytes(image, levels, channel) if is_deep(image) else image


def channel_count(image: Picture) -> int:
    """Return the number of channels; 3 also for gray, because either can become the other."""
    count = len(image.channels) if isinstance(image, Planes) else 3
    return 3 if count == 1 else count


def deep_values(image: Picture) -> list[npt.NDArray[Any]]:
    """Return the values of each channel of more than 8 bits, undecoded: (H, W) each.

    Raises:
        UnreadableImage: the image is truncated or damaged.
    """
    planes = image.channels if isinstance(image, Planes) else [image]
    try:
        return [np.asarray(plane) for plane in planes if is_deep(plane)]
    except _DAMAGED as error:
        raise _unreadable(error) from error


def upright_size(image: Picture) -> tuple[int, int]:
    """Return the (height, width) of the decoded image, from its header if possible.

    Raises:
        UnreadableImage: it is damaged (a PNG may store its EXIF data after the pixels).
    """
    width, height = image.size
    try:
        turned = image.getexif().get(EXIF_ORIENTATION, 1) in (5, 6, 7, 8)
    except _DAMAGED as error:
        raise _unreadable(error) from error
    return (width, height) if turned else (height, width)


def center_crop(image: Picture, size: int, channels: int = 3, levels: Levels = ()) -> Tensor:
    """Return the center of an image for evaluation, as bytes: (C, size, size).

    The shorter side is resized to 8/7 of `size` (256 for 224), and the center is cropped. For a
    `size` below 96 it is resized to `size` itself; an image of that size is not resized at all.
    """
    shorter = round(size * 8 / 7) if size >= 96 else size
    height, width = upright_size(image)
    if (height, width) == (size, size):
        return byte_tensor(decoded(image, channels, levels))
    least = min(height, width)
    if least >= 2 * shorter:
        image.draft(None, (shorter * image.width // least, shorter * image.height // least))
    whole = _without_far_ends(decoded(image, channels, levels))
    scale = shorter / min(whole.size)
    whole = whole.resize(
        (max(size, round(whole.width * scale)), max(size, round(whole.height * scale))),
        Image.Resampling.BILINEAR,
    )
    left, top = (whole.width - size) // 2, (whole.height - size) // 2
    return byte_tensor(whole.crop((left, top, left + size, top + size)))


def squeezed(image: Picture, size: int, channels: int = 3, levels: Levels = ()) -> Tensor:
    """Return the whole image as bytes, (C, size, size), whatever its shape."""
    image.draft(None, (2 * size, 2 * size))
    whole = decoded(image, channels, levels)
    return byte_tensor(whole.resize((size, size), Image.Resampling.BILINEAR))


def _without_far_ends(image: Picture) -> Picture:
    """Crop an image to the middle if it is more than four times as long as it is wide.

    Otherwise a strip of 30,000×1 pixels would be enlarged to gigabytes before it is cropped.
    """
    longest = 4 * min(image.size)
    width, height = min(image.width, longest), min(image.height, longest)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def whole_pixels(image: Picture, channels: int = 3, levels: Levels = ()) -> Tensor:
    """Return all pixels of an image as bytes: (C, H, W)."""
    return byte_tensor(decoded(image, channels, levels))


def shown(pixels: Tensor) -> Image.Image:
    """Return (C, H, W) bytes as an image: the first three channels, or the first alone."""
    channels = [Image.fromarray(channel) for channel in pixels.numpy()]
    return Planes(channels).shown()


def byte_tensor(image: Picture) -> Tensor:
    """Return the pixels of a decoded image: (C, H, W)."""
    if isinstance(image, Planes):
        return torch.from_numpy(np.stack([np.array(channel) for channel in image.channels]))
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())
