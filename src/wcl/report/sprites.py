"""Small pictures for the page: single ones, and many on a few sheets."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from PIL import Image
from torch import Tensor

from wcl.data import ArraySource, Source
from wcl.data.decode import UnreadableImage, center_crop
from wcl.system.machine import cores
from wcl.system.progress import track

_LARGEST = 80
_ACROSS = 32
_PER_SHEET = _ACROSS * 32
_QUALITY = 60


def tile_side(source: Source) -> int:
    """Pixels of a small picture: those that the images have, if they are few."""
    if isinstance(source, ArraySource):
        return min(_LARGEST, source.pixels.shape[2], source.pixels.shape[3])
    return _LARGEST


def tiles(source: Source, rows: Sequence[int], side: int) -> list[Tensor | None]:
    """(C, side, side) bytes of each of these images; None for one that cannot be read."""
    with ThreadPoolExecutor(cores()) as pool:  # decoding does not hold up other threads
        found = pool.map(partial(_tile, source, side), rows)
        return list(track(found, "making small pictures", len(rows)))


def _tile(source: Source, side: int, row: int) -> Tensor | None:
    try:
        return center_crop(source.image(row), side, source.channels)
    except UnreadableImage:
        return None


def picture(pixels: Tensor | None, side: int) -> str:
    """(C, h, w) bytes as a data URI, at most so large; an empty one for None."""
    image = _image(pixels, side)
    if image.width > side:
        image = image.resize((side, side), Image.Resampling.LANCZOS)
    return _encoded(image)


def sheets(pictures: Sequence[Tensor | None], side: int) -> dict[str, object]:
    """Many pictures, `across` to a line and `each` to a sheet."""
    found = []
    for start in range(0, len(pictures), _PER_SHEET):
        part = pictures[start : start + _PER_SHEET]
        sheet = Image.new("RGB", (_ACROSS * side, -(-len(part) // _ACROSS) * side), "#888888")
        for number, pixels in enumerate(part):
            down, right = divmod(number, _ACROSS)
            sheet.paste(_image(pixels, side), (right * side, down * side))
        found.append(_encoded(sheet))
    return {"sheets": found, "side": side, "across": _ACROSS, "each": _PER_SHEET}


def _image(pixels: Tensor | None, side: int) -> Image.Image:
    if pixels is None:
        return Image.new("RGB", (side, side), "#888888")
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).convert("RGB")


def _encoded(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=_QUALITY, method=4)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
