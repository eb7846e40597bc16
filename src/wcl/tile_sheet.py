"""A picture of rows of images: a heading, a title above each row, a caption below each image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageDraw

from wcl.data import Source
from wcl.data.decode import UnreadableImage, decoded
from wcl.pictures import FAINT, GROUND, RULE, write

_TILE = 160
_GAP = 12
_CAPTION = 48
_TITLE = 36
_HEADING = 44
_HEADING_LETTERS, _TITLE_LETTERS, _VALUE_LETTERS, _NAME_LETTERS = 22, 17, 15, 13


class Tile(NamedTuple):
    """An image, a figure below it, and a name below that."""

    image: Image.Image
    value: str
    name: str


@dataclass(frozen=True)
class Row:
    """A title and tiles; the first of them may lead the others, and is then set apart."""

    title: str
    tiles: Sequence[Tile]
    lead: Tile | None = None


def thumbnail(image: Image.Image) -> Image.Image:
    """The whole image, upright, as large as fits a tile; tiny ones show their pixels.

    Raises:
        UnreadableImage: it cannot be decoded.
    """
    image.draft(None, (2 * _TILE, 2 * _TILE))
    whole = decoded(image)
    scale = _TILE / max(whole.size)
    width, height = (max(1, round(side * scale)) for side in whole.size)
    smooth, sharp = Image.Resampling.LANCZOS, Image.Resampling.NEAREST
    return whole.resize((width, height), sharp if scale > 3 else smooth)


def source_thumbnail(source: Source, index: int) -> Image.Image:
    """The same of an image of a source; an empty tile if it has meanwhile become unreadable."""
    try:
        return thumbnail(source.image(index))
    except UnreadableImage:
        return Image.new("RGB", (_TILE, _TILE), GROUND)


def tile_sheet(heading: str, rows: Sequence[Row], columns: int) -> Image.Image:
    """Draw rows below each other; tiles of a row beyond `columns` go on in another line."""
    across = min(columns, max(len(row.tiles) for row in rows))
    leading = _TILE + 3 * _GAP if any(row.lead for row in rows) else 0
    step, line = _TILE + _GAP, _TILE + _CAPTION
    lines = [max(1, -(-len(row.tiles) // across)) for row in rows]
    heights = [_TITLE + count * line + _GAP for count in lines]
    # Headings and titles want some room even above two tiles.
    width = max(leading + across * step, 4 * step) + _GAP
    sheet = Image.new("RGB", (width, _HEADING + sum(heights) + _GAP), "white")
    pen = ImageDraw.Draw(sheet)
    inner = width - 2 * _GAP
    write(pen, (_GAP, _GAP), heading, _HEADING_LETTERS, width=inner)
    top = _HEADING + _GAP
    for row, height in zip(rows, heights, strict=True):
        pen.line([(_GAP, top), (width - _GAP, top)], RULE)
        write(pen, (_GAP, top + 8), row.title, _TITLE_LETTERS, width=inner)
        first = top + _TITLE
        if row.lead:
            _place(sheet, row.lead, _GAP, first)
            ruled = leading - _GAP // 2
            pen.line([(ruled, first), (ruled, top + height - 2 * _GAP)], RULE, 2)
        for number, tile in enumerate(row.tiles):
            down, right = divmod(number, across)
            _place(sheet, tile, leading + _GAP + right * step, first + down * line)
        top += height
    return sheet


def _place(sheet: Image.Image, tile: Tile, left: int, top: int) -> None:
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((left, top, left + _TILE - 1, top + _TILE - 1), fill=GROUND)
    middle = left + (_TILE - tile.image.width) // 2, top + (_TILE - tile.image.height) // 2
    sheet.paste(tile.image, middle)
    write(pen, (left, top + _TILE + 3), tile.value, _VALUE_LETTERS, width=_TILE)
    write(pen, (left, top + _TILE + 22), tile.name, _NAME_LETTERS, FAINT, width=_TILE)
