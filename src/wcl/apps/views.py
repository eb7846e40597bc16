"""A picture of what the augmentations do: one row per image, the original and some views of it."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from wcl.config import PretrainConfig, ViewsConfig
from wcl.config.validation import check
from wcl.data import Source, first_classes, in_memory, open_source
from wcl.data.decode import UnreadableImage, center_crop
from wcl.data.loader import views_of
from wcl.models.multiview import view_specs
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, new_file
from wcl.system.pictures import INK, RULE, text_width, write
from wcl.system.progress import track

_SMALLEST_TILE = 96
_NEIGHBOR_TILE = 96
_GAP = 8
_BETWEEN_PARTS = 32
_HEADING, _LETTERS = 30, 15
_FRAME = 3
# Blue and orange: told apart by color-blind readers too.
_SAME_CLASS, _OTHER_CLASS = "#0072b2", "#e69f00"
_LEGEND = {_SAME_CLASS: "same class", _OTHER_CLASS: "other class"}


class _Part(NamedTuple):
    """Tiles of every row that belong together, under one heading."""

    heading: str
    tiles: int


def views(config: ViewsConfig) -> Path:
    """`wcl views SRC`: write the sheet of a run's augmentations on the user's own images."""
    check(dataclasses.replace(config, out="views.png"))
    out = new_file(config.out or "views.png", (".png",))
    for name in ("images", "views"):
        if getattr(config, name) < 1:
            raise InputError(f"--{name}: must be at least 1, not {getattr(config, name)}")
    source = in_memory(first_classes(open_source(config.data), config.classes))
    sheet = contact_sheet(source, config, config.images, config.views)
    with atomic_write(out) as unfinished:
        sheet.save(unfinished, "PNG")
    views, crops = _counted(config.views, "view"), config.crops
    shown = f"and {views} of it"
    if crops.count:
        shown = f"{views} of it and {_counted(crops.count, 'small crop')}"
    print(f"wrote {out}: each row is an image{',' if crops.count else ''} {shown}")
    return out


def contact_sheet(
    source: Source, config: PretrainConfig, images: int = 8, views: int = 8
) -> Image.Image:
    """Rows of an original and its augmented views, as training with these settings sees them."""
    found = _images_and_views(source, config, views)
    rows = list(track(islice(found, images), "making views", min(images, len(source))))
    if not rows:
        raise InputError(f"{source.name}: none of its images can be read")
    crops = config.crops
    parts = [_Part("image", 1), _Part(f"views of {config.image_size} pixels", views)]
    if crops.count:
        parts.append(_Part(f"crops of {config.crop_size} pixels", crops.count))
    return _sheet(rows, config.image_size, parts)


def _images_and_views(source: Source, config: PretrainConfig, count: int) -> Iterator[list[Tensor]]:
    """Of the images that can be read, in random order: the image, its views and small crops."""
    for index in np.random.default_rng(config.seed).permutation(len(source)).tolist():
        try:
            original = center_crop(source.image(index), config.image_size, source.channels)
            yield [original, *_views(source, index, config, count)]
        except UnreadableImage:
            continue


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _views(source: Source, index: int, config: PretrainConfig, count: int) -> list[Tensor]:
    """(C, size, size) bytes of each view, then of each small crop."""
    full, *small = view_specs(config, source.channels)
    kinds = [dataclasses.replace(full, count=count), *small]
    batch = views_of(source, np.array([index], dtype=np.int64), kinds, config.seed)
    if batch.skipped:
        raise UnreadableImage(batch.skipped[index])
    pairs = zip(kinds, batch.views, strict=True)
    return [view for kind, views in pairs for view in kind.maker.to_pixels(views)]


def write_neighbors(path: Path, source: Source, neighbors: Integers, seed: int) -> None:
    """Write the sheet of neighbors as PNG, whole or not at all."""
    sheet = neighbor_sheet(source, neighbors, seed)
    if sheet is not None:
        with atomic_write(path) as unfinished:
            sheet.save(unfinished, "PNG")


def neighbor_sheet(
    source: Source, neighbors: Integers, seed: int, images: int = 10
) -> Image.Image | None:
    """Rows of an image and its nearest neighbors, framed by whether they are of its class.

    None if there is no image that can be read together with its neighbors.
    """
    order = np.random.default_rng(seed).permutation(len(source)).tolist()
    size = _NEIGHBOR_TILE
    rows: list[list[Tensor]] = []
    frames: list[list[str]] = []
    for index in order:
        if len(rows) == images:
            break
        shown = [index, *neighbors[index].tolist()]
        try:
            rows.append([center_crop(source.image(i), size, source.channels) for i in shown])
        except UnreadableImage:
            continue
        if source.labels is not None:
            same = (source.labels[shown] == source.labels[index]).tolist()
            frames.append([_SAME_CLASS if s else _OTHER_CLASS for s in same])
    parts = [_Part("image", 1), _Part("nearest neighbors", neighbors.shape[1])]
    return _sheet(rows, size, parts, frames) if rows else None


def _sheet(
    rows: list[list[Tensor]],
    size: int,
    parts: Sequence[_Part],
    frames: Sequence[Sequence[str]] = (),
) -> Image.Image:
    """Tiles in rows, a line between the parts; small ones stay smaller, some are framed."""
    tile = size * max(1, -(-_SMALLEST_TILE // size))
    step = tile + _GAP
    sides = [pixels.shape[-1] * tile // size for pixels in rows[0]]
    lefts, lines, right = _columns(parts, sides)
    bottom = _HEADING + len(rows) * step
    sheet = Image.new("RGB", (right, bottom + (_HEADING if frames else 0)), "white")
    pen = ImageDraw.Draw(sheet)
    first = 0
    for part in parts:
        write(pen, (lefts[first], _GAP - 2), part.heading, _LETTERS)
        first += part.tiles
    for line in lines:
        pen.line([(line, _GAP), (line, bottom - _GAP)], RULE, 2)
    for down, row in enumerate(rows):
        for across, (pixels, side) in enumerate(zip(row, sides, strict=True)):
            array = pixels.permute(1, 2, 0).numpy()
            picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
            left, top = lefts[across], _HEADING + down * step + (tile - side) // 2
            sheet.paste(picture.resize((side, side), Image.Resampling.NEAREST), (left, top))
            if frames and across:
                far = side + _FRAME - 1
                box = (left - _FRAME, top - _FRAME, left + far, top + far)
                pen.rectangle(box, outline=frames[down][across], width=_FRAME)
    if frames:
        _draw_legend(pen, _GAP, bottom)
    return sheet


def _columns(parts: Sequence[_Part], sides: Sequence[int]) -> tuple[list[int], list[int], int]:
    """Where each tile of a row begins, where the lines between parts are, and where all ends."""
    lefts: list[int] = []
    lines: list[int] = []
    left = _GAP
    for part in parts:
        if lefts:
            lines.append(left + _BETWEEN_PARTS // 2)
            left += _BETWEEN_PARTS
        side = sides[len(lefts)]
        lefts += [left + number * (side + _GAP) for number in range(part.tiles)]
        width = part.tiles * (side + _GAP) - _GAP
        left += max(width, math.ceil(text_width(part.heading, _LETTERS)))
    return lefts, lines, left + _GAP


def _draw_legend(pen: ImageDraw.ImageDraw, left: int, top: int) -> None:
    """What the frames' colors mean."""
    for color, meaning in _LEGEND.items():
        pen.rectangle((left, top + 6, left + 11, top + 17), outline=color, width=_FRAME)
        write(pen, (left + 18, top + 3), meaning, _LETTERS, INK)
        left += 18 + math.ceil(text_width(meaning, _LETTERS)) + 2 * _GAP
