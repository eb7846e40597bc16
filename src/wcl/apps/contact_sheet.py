"""Contact sheets: rows of images with captions on one picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps

from wcl.data.decode import channel_count, decoded
from wcl.data.levels import Levels
from wcl.data.planes import Picture, Planes
from wcl.system.files import atomic_write
from wcl.system.paths import shortened

TILE = 160
"""Side of a tile, in pixels."""
RULE = "#c8c8c8"
_INK, _FAINT, _GROUND = "#1a1a1a", "#555555", "#f2f2f2"
_GAP = 12
_MARGIN = _GAP // 2  # around a tile
_FRAME = 3
_HEADING_HEIGHT, _TITLE_HEIGHT, _CAPTION_HEIGHT, _NAME_HEIGHT = 44, 36, 18, 18
_HEADING_SIZE, _TITLE_SIZE, _CAPTION_SIZE, _NAME_SIZE = 22, 17, 15, 13
_MAX_HEADING_WIDTH = 1000


class Tile(NamedTuple):
    """An image no larger than a tile, with text below it and a frame around it, if any."""

    image: Image.Image
    caption: str = ""
    name: str = ""
    """Second line below the image, in small letters."""
    frame: str = ""
    """Its color."""


class Row(NamedTuple):
    """Tiles that belong together, below a title, if any."""

    title: str
    parts: Sequence[Sequence[Tile]]
    """Parts of the row, with a rule between them."""


def thumbnail(image: Picture, levels: Levels = (), side: int = TILE) -> Image.Image:
    """Return the whole image, upright, as large as fits a tile; tiny images show their pixels.

    Args:
        image: of more than three channels, the first three are shown.
        levels: range of the values of an image of more than 8 bits.
        side: of the tile.

    Raises:
        UnreadableImage: it cannot be decoded.
    """
    image.draft(None, (2 * side, 2 * side))
    whole = decoded(image, channel_count(image), levels)
    if isinstance(whole, Planes):
        whole = whole.shown()
    scale = side / max(whole.size)
    width, height = (max(1, round(length * scale)) for length in whole.size)
    smooth, sharp = Image.Resampling.LANCZOS, Image.Resampling.NEAREST
    return whole.resize((width, height), sharp if scale > 3 else smooth)


def write_sheet(path: Path, sheet: Image.Image) -> None:
    """Write a sheet as PNG, completely or not at all."""
    with atomic_write(path) as unfinished:
        sheet.save(unfinished, "PNG")


def contact_sheet(heading: str, rows: Sequence[Row], columns: int, tile: int = TILE) -> Image.Image:
    """Draw rows from left to right, as many beside each other as fit, and from top to bottom.

    Args:
        heading: what the sheet shows.
        rows: at least one.
        columns: tiles beside each other in a part of a row; further tiles go into more lines.
        tile: side of a tile, in pixels.
    """
    tiles = [shown for row in rows for part in row.parts for shown in part]
    text_height = _CAPTION_HEIGHT * any(shown.caption for shown in tiles)
    text_height += _NAME_HEIGHT * any(shown.name for shown in tiles)
    images = [_row_image(row, columns, tile, text_height) for row in rows]
    max_width = max([columns * (tile + 2 * _GAP) + _GAP, *(image.width for image in images)])
    shelves = _shelves(images, max_width)
    # The narrowest sheet with as few shelves: its last one is as full as can be.
    widths = (w for w in range(max_width + 1) if len(_shelves(images, w)) == len(shelves))
    body = _below([_beside(shelf, 2 * _GAP) for shelf in _shelves(images, next(widths))])
    heading_width = math.ceil(ImageFont.load_default(_HEADING_SIZE).getlength(heading))
    inner = max(body.width - _GAP, min(_MAX_HEADING_WIDTH, heading_width))
    height = _HEADING_HEIGHT + body.height + _GAP
    sheet = Image.new("RGB", (inner + 2 * _GAP, height), "white")
    _write(sheet, (_GAP, _GAP), heading, _HEADING_SIZE, inner)
    sheet.paste(body, (_GAP - _MARGIN, _HEADING_HEIGHT + _GAP - _MARGIN))
    return sheet


def _row_image(row: Row, columns: int, tile: int, text_height: int) -> Image.Image:
    parts: list[Image.Image] = []
    for part in row.parts:
        tiles = [_tile_image(shown, tile, text_height) for shown in part]
        starts = range(0, len(tiles), columns)
        image = _below([_beside(tiles[start : start + columns]) for start in starts])
        if parts:
            image = ImageOps.expand(image, (2 * _GAP, 0, 0, 0), "white")
            line = [(_GAP, _MARGIN), (_GAP, image.height - _MARGIN)]
            ImageDraw.Draw(image).line(line, RULE, 2)
        parts.append(image)
    image = _beside(parts)
    if row.title:
        image = ImageOps.expand(image, (0, _TITLE_HEIGHT, 0, _GAP), "white")
        right = image.width - _MARGIN
        ImageDraw.Draw(image).line([(_MARGIN, _MARGIN), (right, _MARGIN)], RULE)
        _write(image, (_MARGIN, _MARGIN + 8), row.title, _TITLE_SIZE, right - _MARGIN)
    return image


def _tile_image(shown: Tile, tile: int, text_height: int) -> Image.Image:
    """Draw a tile with its text and a margin, which a frame may extend into."""
    size = tile + 2 * _MARGIN, tile + text_height + 2 * _MARGIN
    drawn = Image.new("RGB", size, "white")
    end = _MARGIN + tile
    ImageDraw.Draw(drawn).rectangle((_MARGIN, _MARGIN, end - 1, end - 1), fill=_GROUND)
    image = shown.image.convert("RGB")
    if shown.frame:
        image = ImageOps.expand(image, _FRAME, shown.frame)
    left, top = (_MARGIN + (tile - side) // 2 for side in image.size)
    drawn.paste(image, (left, top))
    below = end + 3
    if shown.caption:
        _write(drawn, (_MARGIN, below), shown.caption, _CAPTION_SIZE, tile)
        below += _CAPTION_HEIGHT
    _write(drawn, (_MARGIN, below), shown.name, _NAME_SIZE, tile, _FAINT)
    return drawn


def _beside(images: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    joined = Image.new("RGB", (_width(images, gap), max(i.height for i in images)), "white")
    for number, image in enumerate(images):
        joined.paste(image, (_width(images[: number + 1], gap) - image.width, 0))
    return joined


def _below(images: Sequence[Image.Image]) -> Image.Image:
    size = max(image.width for image in images), sum(image.height for image in images)
    joined = Image.new("RGB", size, "white")
    top = 0
    for image in images:
        joined.paste(image, (0, top))
        top += image.height
    return joined


def _shelves(images: Sequence[Image.Image], width: int) -> list[list[Image.Image]]:
    """Put images on shelves of at most that width, or of a single image that is wider."""
    shelves: list[list[Image.Image]] = []
    for image in images:
        if shelves and _width([*shelves[-1], image], 2 * _GAP) <= width:
            shelves[-1].append(image)
        else:
            shelves.append([image])
    return shelves


def _width(shelf: Sequence[Image.Image], gap: int) -> int:
    return sum(image.width for image in shelf) + (len(shelf) - 1) * gap


def _write(
    sheet: Image.Image, corner: tuple[int, int], text: str, size: int, width: int, color: str = _INK
) -> None:
    """Draw text from its upper left corner, shortened to a width in pixels."""
    font = ImageFont.load_default(size)
    ImageDraw.Draw(sheet).text(corner, shortened(text, width, font.getlength), color, font)
