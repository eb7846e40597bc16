"""Contact sheets: rows of images with captions on one picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps

from wcl.data.decode import decoded
from wcl.system.files import atomic_write
from wcl.system.paths import shortened

TILE = 160
"""Side of a tile, in pixels."""
RULE = "#c8c8c8"
_INK, _FAINT, _GROUND = "#1a1a1a", "#555555", "#f2f2f2"
_GAP = 12
_BETWEEN_BLOCKS = 3 * _GAP
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


class _Block(NamedTuple):
    """A row with its size and the places of its tiles and rules, relative to its corner."""

    title: str
    width: int
    height: int
    tiles: list[tuple[Tile, int, int]]
    """Each with its left and upper edge."""
    rules: list[int]


def thumbnail(image: Image.Image, side: int = TILE) -> Image.Image:
    """Return the whole image, upright, as large as fits a tile; tiny images show their pixels.

    Raises:
        UnreadableImage: it cannot be decoded.
    """
    image.draft(None, (2 * side, 2 * side))
    whole = decoded(image)
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
    blocks = [_block(row, columns, tile, text_height) for row in rows]
    max_width = max([columns * (tile + 2 * _GAP), *(block.width for block in blocks)])
    shelves = _shelves(blocks, max_width)
    # The narrowest sheet with as few shelves: its last one is as full as can be.
    widths = (w for w in range(max_width + 1) if len(_shelves(blocks, w)) == len(shelves))
    shelves = _shelves(blocks, next(widths))
    inner = max(map(_width, shelves))
    inner = max(inner, min(_MAX_HEADING_WIDTH, math.ceil(_text_width(heading, _HEADING_SIZE))))
    heights = [max(block.height for block in shelf) for shelf in shelves]
    sheet = Image.new("RGB", (inner + 2 * _GAP, _HEADING_HEIGHT + sum(heights) + _GAP), "white")
    _write(ImageDraw.Draw(sheet), (_GAP, _GAP), heading, _HEADING_SIZE, inner)
    top = _HEADING_HEIGHT + _GAP
    for shelf, height in zip(shelves, heights, strict=True):
        left = _GAP
        for block in shelf:
            _draw(sheet, block, left, top, tile)
            left += block.width + _BETWEEN_BLOCKS
        top += height
    return sheet


def _block(row: Row, columns: int, tile: int, text_height: int) -> _Block:
    first = _TITLE_HEIGHT if row.title else 0
    step = tile + text_height + _GAP
    left, lines = 0, 1
    tiles: list[tuple[Tile, int, int]] = []
    rules: list[int] = []
    for part in row.parts:
        if tiles:
            rules.append(left + _GAP // 2)
            left += 2 * _GAP
        across = max(1, min(columns, len(part)))
        for number, shown in enumerate(part):
            down, right = divmod(number, across)
            tiles.append((shown, left + right * (tile + _GAP), first + down * step))
        lines = max(lines, -(-len(part) // across))
        left += across * (tile + _GAP)
    height = first + lines * step + (_GAP if row.title else 0)
    return _Block(row.title, left - _GAP, height, tiles, rules)


def _shelves(blocks: Sequence[_Block], width: int) -> list[list[_Block]]:
    """Put the blocks on shelves of at most that width, or of a single block that is wider."""
    shelves: list[list[_Block]] = []
    for block in blocks:
        if shelves and _width([*shelves[-1], block]) <= width:
            shelves[-1].append(block)
        else:
            shelves.append([block])
    return shelves


def _width(shelf: Sequence[_Block]) -> int:
    return sum(block.width for block in shelf) + (len(shelf) - 1) * _BETWEEN_BLOCKS


def _draw(sheet: Image.Image, block: _Block, left: int, top: int, tile: int) -> None:
    pen = ImageDraw.Draw(sheet)
    if block.title:
        pen.line([(left, top), (left + block.width, top)], RULE)
        _write(pen, (left, top + 8), block.title, _TITLE_SIZE, block.width)
    upper = top + (_TITLE_HEIGHT if block.title else 0)
    lower = top + block.height - (2 if block.title else 1) * _GAP
    for rule in block.rules:
        pen.line([(left + rule, upper), (left + rule, lower)], RULE, 2)
    for shown, right, down in block.tiles:
        _draw_tile(sheet, shown, left + right, top + down, tile)


def _draw_tile(sheet: Image.Image, shown: Tile, left: int, top: int, tile: int) -> None:
    pen = ImageDraw.Draw(sheet)
    pen.rectangle((left, top, left + tile - 1, top + tile - 1), fill=_GROUND)
    image = shown.image.convert("RGB")
    if shown.frame:
        image = ImageOps.expand(image, _FRAME, shown.frame)
    sheet.paste(image, (left + (tile - image.width) // 2, top + (tile - image.height) // 2))
    below = top + tile + 3
    if shown.caption:
        _write(pen, (left, below), shown.caption, _CAPTION_SIZE, tile)
        below += _CAPTION_HEIGHT
    _write(pen, (left, below), shown.name, _NAME_SIZE, tile, _FAINT)


def _write(
    pen: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    text: str,
    size: int,
    width: int,
    color: str = _INK,
) -> None:
    """Draw text from its upper left corner, shortened to a width in pixels."""
    font = ImageFont.load_default(size)
    pen.text(corner, shortened(text, width, font.getlength), color, font)


def _text_width(text: str, size: int) -> float:
    return ImageFont.load_default(size).getlength(text)
