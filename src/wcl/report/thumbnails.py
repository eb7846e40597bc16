"""Small copies of images for the pages: single ones, and many on a few sheets."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from PIL import Image
from torch import Tensor

from wcl.data import ArraySource, Source
from wcl.data.decode import UnreadableImage, center_crop, shown
from wcl.system.machine import cores
from wcl.system.progress import track

_MAX_SIDE = 80
_COLUMNS = 32
_PER_SHEET = _COLUMNS * 32
_QUALITY = 60


def thumbnail_side(source: Source) -> int:
    """Return the side of thumbnails in pixels; small images keep theirs."""
    if isinstance(source, ArraySource):
        return min(_MAX_SIDE, source.pixels.shape[2], source.pixels.shape[3])
    return _MAX_SIDE


def thumbnails(source: Source, side: int) -> list[Tensor | None]:
    """Return (C, side, side) uint8 for each image; None for one that cannot be read."""
    with ThreadPoolExecutor(cores()) as pool:  # decoding releases the interpreter lock
        found = pool.map(partial(_thumbnail, source, side), range(len(source)))
        return list(track(found, "making thumbnails", len(source)))


def _thumbnail(source: Source, side: int, row: int) -> Tensor | None:
    try:
        return center_crop(source.image(row), side, source.channels, source.levels)
    except UnreadableImage:
        return None


def data_uri(pixels: Tensor, side: int) -> str:
    """Return (C, H, W) uint8 as an image in a data URI, shrunk to `side` if it is larger."""
    image = _image(pixels)
    if image.width > side:
        image = image.resize((side, side), Image.Resampling.LANCZOS)
    return _encoded(image)


def sheets(images: Sequence[Tensor], side: int) -> dict[str, object]:
    """Return thumbnails on sheets: `across` in each row, `each` on every sheet."""
    found = []
    for start in range(0, len(images), _PER_SHEET):
        part = images[start : start + _PER_SHEET]
        sheet = Image.new("RGB", (_COLUMNS * side, -(-len(part) // _COLUMNS) * side))
        for number, pixels in enumerate(part):
            down, right = divmod(number, _COLUMNS)
            sheet.paste(_image(pixels), (right * side, down * side))
        found.append(_encoded(sheet))
    return {"sheets": found, "side": side, "across": _COLUMNS, "each": _PER_SHEET}


def _image(pixels: Tensor) -> Image.Image:
    return shown(pixels).convert("RGB")


def _encoded(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=_QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
