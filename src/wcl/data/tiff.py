"""TIFF files that PIL would read in part: with other channels than gray or color, or deep color."""

import io
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from wcl.data.planes import Planes

if TYPE_CHECKING:
    from tifffile import TiffFile

MAX_CHANNELS = 64
_BYTES_PER_PIXEL = 3  # of the color images for which PIL has its limit
# Tags of TIFF, and the values of two of them.
_BITS, _PHOTOMETRIC, _DESCRIPTION, _ORIENTATION, _SAMPLES, _EXTRA = 258, 262, 270, 274, 277, 338
_RGB, _OTHER_COLORS = 2, (3, 5, 6, 8)  # a palette, CMYK, YCbCr, Lab
_ALPHA = (1, 2)
# None, LZW, deflate (two numbers), PackBits, Zstandard. There are fifty more, but channels are
# rarely stored in them, and every decoder in C is a risk.
_COMPRESSIONS = (1, 5, 8, 32946, 32773, 50000)
# Pages that are channels, as ImageJ, OME and tifffile describe them.
_STATED_CHANNELS = re.compile(r'^channels=(\d+)|\bSizeC="(\d+)"', re.MULTILINE)
_STATED_AXES = re.compile(r'"axes": "\w*C')


def is_tiff(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is a TIFF."""
    return head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def pil_reads_all(tags: Mapping[int, Any]) -> bool:
    """Return whether PIL reads every channel of a TIFF with these tags, with all of its bits.

    Samples that are declared as neither a color nor transparency are channels.
    """
    samples = int(tags.get(_SAMPLES, 1))
    stated = str(tags.get(_DESCRIPTION, ""))
    numbers = [int(a or b) for a, b in _STATED_CHANNELS.findall(stated[: 2**16])]
    if max(numbers, default=0) > samples or _STATED_AXES.search(stated[: 2**16]):
        return False
    if tags.get(_PHOTOMETRIC) in _OTHER_COLORS:
        return True
    extra = tags.get(_EXTRA, ())
    if not extra and samples == 4 and tags.get(_PHOTOMETRIC) == _RGB:
        extra = _ALPHA[:1]
    channels = samples - sum(kind in _ALPHA for kind in extra)
    return channels in (1, 3) and (samples == 1 or max(tags.get(_BITS, (8,))) <= 8)


def read_planes(where: Path | bytes) -> Planes:
    """Read all channels of a TIFF: of the first image, time and slice if it has several.

    Raises:
        ImportError: tifffile or imagecodecs is not installed.
        Exception: the file is damaged, too large or compressed in another way.
    """
    import imagecodecs  # noqa: F401  # without it, tifffile decompresses bombs
    from tifffile import TiffFile

    logging.getLogger("tifffile").disabled = True  # it reports damage twice
    file = io.BytesIO(where) if isinstance(where, bytes) else where
    with TiffFile(file, _multifile=False) as tiff:  # never files that its metadata name
        array = _channels(tiff)
        tag = tiff.pages.first.tags.get(_ORIENTATION)
    return Planes([_plane(channel, int(tag.value) if tag else 1) for channel in array])


def _channels(tiff: "TiffFile") -> Any:
    """Return the channels as an array (C, H, W)."""
    series, page = tiff.series[0], tiff.pages.first
    if page.compression not in _COMPRESSIONS:
        raise ValueError(f"compression {page.compression} is not supported; use deflate or LZW")
    largest = 2 * (Image.MAX_IMAGE_PIXELS or 2**62) * _BYTES_PER_PIXEL
    size = max(series.size, int(np.prod(page.chunks, dtype=object))) * series.dtype.itemsize
    if size > largest:
        raise ValueError(
            f"its values take {size:,} bytes, more than the limit of {largest:,}: it could be a "
            "decompression bomb"
        )
    array, axes = series.asarray(maxworkers=1), series.axes
    for axis in set(axes) - set("CSYX"):
        array, axes = array.take(0, axes.index(axis)), axes.replace(axis, "")
    array = array.transpose([axes.index(axis) for axis in "CSYX" if axis in axes])
    if "S" in axes:
        kinds = [0] * (page.samplesperpixel - len(page.extrasamples)) + [*page.extrasamples]
        colors = [i for i, kind in enumerate(kinds) if kind not in _ALPHA]
        array = array.take(colors, -3)
    array = array.reshape(-1, *array.shape[-2:])
    if not 0 < len(array) <= MAX_CHANNELS:
        raise ValueError(f"it has {len(array)} channels; at most {MAX_CHANNELS} are supported")
    return array


def _plane(array: Any, orientation: int) -> Image.Image:
    """Return one channel as an image of bytes, 16 bits, integers or floating-point numbers."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"its values are of type {array.dtype}, which is not supported")
    kept = {"b1": np.uint8, "u1": np.uint8, "u2": np.uint16, "i1": np.int32, "i2": np.int32}
    kept["i4"] = np.int32
    plane = Image.fromarray(array.astype(kept.get(array.dtype.str[1:], np.float32)))
    if array.dtype.kind == "b":
        plane = plane.point(lambda value: value * 255)
    if orientation != 1:
        plane.getexif()[_ORIENTATION] = orientation
        plane = ImageOps.exif_transpose(plane)
    return plane
