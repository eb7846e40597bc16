"""A picture of rows of images with a title above each row and a caption below each image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from wcl.data import Source
from wcl.data.decode import UnreadableImage, decoded

_TILE = 144
_GAP = 12
_CAPTION = 40
_TITLE = 30
_TITLE_FONT, _VALUE_FONT, _NAME_FONT = (ImageFont.load_default(size) for size in (15, 14, 11))
_INK, _FAINT, _RULE, _GROUND = "#1a1a1a", "#6a6a6a", "#d0d0d0", "#f2f2f2"


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
        return Image.new("RGB", (_TILE, _TILE), _GROUND)


def tile_sheet(rows: Sequence[Row], columns: int) -> Image.Image:
    """Draw rows below each other; tiles of a row beyond `columns` go on in another line."""
    across = min(columns, max(len(row.tiles) for row in rows))
    leading = _TILE + 3 * _GAP if any(row.lead for row in rows) else 0
    step, line = _TILE + _GAP, _TILE + _CAPTION
    lines = [max(1, -(-len(row.tiles) // across)) for row in rows]
    heights = [_TITLE + count * line + _GAP for count in lines]
    sheet = Image.new("RGB", (leading + across * step + _GAP, sum(heights) + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    top = _GAP
    for row, height in zip(rows, heights, strict=True):
        title = _fitted(row.title, _TITLE_FONT, sheet.width - 2 * _GAP)
        draw.text((_GAP, top), title, _INK, _TITLE_FONT)
        first = top + _TITLE
        if row.lead:
            _place(sheet, row.lead, _GAP, first)
            ruled = leading - _GAP // 2
            draw.line([(ruled, first), (ruled, top + height - 2 * _GAP)], _RULE, 2)
        for number, tile in enumerate(row.tiles):
            down, right = divmod(number, across)
            _place(sheet, tile, leading + _GAP + right * step, first + down * line)
        top += height
    return sheet


def _place(sheet: Image.Image, tile: Tile, left: int, top: int) -> None:
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((left, top, left + _TILE - 1, top + _TILE - 1), fill=_GROUND)
    middle = left + (_TILE - tile.image.width) // 2, top + (_TILE - tile.image.height) // 2
    sheet.paste(tile.image, middle)
    draw.text((left, top + _TILE + 2), tile.value, _INK, _VALUE_FONT)
    name = _fitted(tile.name, _NAME_FONT, _TILE)
    draw.text((left, top + _TILE + 18), name, _FAINT, _NAME_FONT)


def _fitted(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: int) -> str:
    """The text, or as much of its end as fits: names differ there."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength("…" + text) > width:
        text = text[1:]
    return "…" + text
