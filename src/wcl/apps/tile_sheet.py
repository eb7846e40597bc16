"""A picture of rows of images: a heading, a title above each row, a caption below each image.

Short rows stand beside each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageDraw

from wcl.data import Source
from wcl.data.decode import UnreadableImage, decoded
from wcl.system.pictures import FAINT, GROUND, RULE, text_width, write

_TILE = 160
_GAP = 12
_CAPTION = 48
_LEADING = _TILE + 3 * _GAP
_BETWEEN_ROWS = 3 * _GAP
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
    """Draw rows from left to right, as many beside each other as have room, and from top to bottom.

    Args:
        heading: what it is a picture of.
        rows: at least one.
        columns: tiles beside each other; those of a row beyond that go on in another line.
    """
    blocks = [_block(row, columns) for row in rows]
    most = max([columns * (_TILE + 2 * _GAP), *(block.width for block in blocks)])
    shelves = _shelves(blocks, most)
    # No wider than so few lines need: the last one is then as full as can be.
    enough = (w for w in range(most + 1) if len(_shelves(blocks, w)) == len(shelves))
    shelves = _shelves(blocks, next(enough))
    inner = max(map(_width, shelves))
    inner = max(inner, min(most, math.ceil(text_width(heading, _HEADING_LETTERS))))
    heights = [max(block.height for block in shelf) for shelf in shelves]
    sheet = Image.new("RGB", (inner + 2 * _GAP, _HEADING + sum(heights) + _GAP), "white")
    write(ImageDraw.Draw(sheet), (_GAP, _GAP), heading, _HEADING_LETTERS, width=inner)
    top = _HEADING + _GAP
    for shelf, height in zip(shelves, heights, strict=True):
        left = _GAP
        for block in shelf:
            _draw(sheet, block, left, top)
            left += block.width + _BETWEEN_ROWS
        top += height
    return sheet


class _Block(NamedTuple):
    """A row and the room that it takes."""

    row: Row
    across: int
    """Tiles beside each other."""
    width: int
    height: int


def _block(row: Row, columns: int) -> _Block:
    across = max(1, min(columns, len(row.tiles)))
    lines = max(1, -(-len(row.tiles) // across))
    width = (_LEADING if row.lead else 0) + across * (_TILE + _GAP) - _GAP
    return _Block(row, across, width, _TITLE + lines * (_TILE + _CAPTION) + _GAP)


def _shelves(blocks: Sequence[_Block], width: int) -> list[list[_Block]]:
    """The blocks in lines of at most that width, or of a single block that is wider."""
    shelves: list[list[_Block]] = []
    for block in blocks:
        if shelves and _width([*shelves[-1], block]) <= width:
            shelves[-1].append(block)
        else:
            shelves.append([block])
    return shelves


def _width(shelf: Sequence[_Block]) -> int:
    return sum(block.width for block in shelf) + (len(shelf) - 1) * _BETWEEN_ROWS


def _draw(sheet: Image.Image, block: _Block, left: int, top: int) -> None:
    """A line, the title below it, and the tiles."""
    pen, row = ImageDraw.Draw(sheet), block.row
    pen.line([(left, top), (left + block.width, top)], RULE)
    write(pen, (left, top + 8), row.title, _TITLE_LETTERS, width=block.width)
    first = top + _TITLE
    if row.lead:
        _place(sheet, row.lead, left, first)
        left += _LEADING
        ruled = left - 3 * _GAP // 2
        pen.line([(ruled, first), (ruled, top + block.height - 2 * _GAP)], RULE, 2)
    for number, tile in enumerate(row.tiles):
        down, right = divmod(number, block.across)
        place = left + right * (_TILE + _GAP), first + down * (_TILE + _CAPTION)
        _place(sheet, tile, *place)


def _place(sheet: Image.Image, tile: Tile, left: int, top: int) -> None:
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((left, top, left + _TILE - 1, top + _TILE - 1), fill=GROUND)
    middle = left + (_TILE - tile.image.width) // 2, top + (_TILE - tile.image.height) // 2
    sheet.paste(tile.image, middle)
    write(pen, (left, top + _TILE + 3), tile.value, _VALUE_LETTERS, width=_TILE)
    write(pen, (left, top + _TILE + 22), tile.name, _NAME_LETTERS, FAINT, width=_TILE)
