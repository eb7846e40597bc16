"""A picture of what the augmentations do: one row per image, the original and some views of it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from wcl.checks import check
from wcl.config import AugmentConfig, PretrainConfig, ViewsConfig
from wcl.data import Source, first_classes, in_memory, open_source
from wcl.data.decode import UnreadableImage, centre_crop
from wcl.data.photo_views import PhotoViews, Task
from wcl.errors import InputError
from wcl.multicrop import view_kinds
from wcl.new_file import new_file
from wcl.randomness import Draws, Integers

_SMALLEST_TILE = 96
_NEIGHBOUR_TILE = 96
_GAP = 8
_FRAME = 3
# Blue and orange: told apart by colour-blind readers too.
_SAME_CLASS, _OTHER_CLASS = "#0072b2", "#e69f00"
_LEGEND = "blue: of the image's class, orange: of another"


def views(config: ViewsConfig) -> Path:
    """`wcl views SRC`: write the sheet of a run's augmentations on the user's own images."""
    check(dataclasses.replace(config, out="views.png"))
    out = new_file(config.out or "views.png", (".png",))
    for name in ("images", "views"):
        if getattr(config, name) < 1:
            raise InputError(f"--{name}: must be at least 1, not {getattr(config, name)}")
    source = in_memory(first_classes(open_source(config.data), config.classes))
    contact_sheet(source, config, config.images, config.views).save(out)
    print(f"wrote {out}: each row is an image and {config.views} views of it")
    return out


def contact_sheet(
    source: Source, config: PretrainConfig, images: int = 8, views: int = 8
) -> Image.Image:
    """Rows of an original and its augmented views, as training with these settings sees them."""
    order = np.random.default_rng(config.seed).permutation(len(source)).tolist()
    rows: list[list[Tensor]] = []
    for index in order:
        if len(rows) == images:
            break
        try:
            original = centre_crop(source.image(index), config.size, source.channels)
            rows.append([original, *_views(source, index, config, views)])
        except UnreadableImage:
            continue
    if not rows:
        raise InputError(f"{source.name}: none of its images can be read")
    return _sheet(rows, config.size)


def _views(source: Source, index: int, config: PretrainConfig, count: int) -> list[Tensor]:
    """(C, size, size) bytes of each view, then of each small crop."""
    full, *small = view_kinds(config, source.channels)
    kinds = [dataclasses.replace(full, count=count), *small]
    makers = [kind.maker for kind in kinds]
    rows = np.array([index], dtype=np.int64)
    origins = [kind.origins_of(rows) for kind in kinds]
    cut = PhotoViews(source, config.seed, 0)[Task(0, makers, rows, origins)]
    if cut.skipped:
        raise UnreadableImage(cut.skipped[index])
    found: list[Tensor] = []
    for maker, crops in zip(makers, cut.crops, strict=True):
        view = np.arange(len(found), len(found) + len(crops), dtype=np.int64)
        draws = Draws(config.seed, 0, np.repeat(rows, len(crops)), view)
        found += _visible(maker.from_crops(crops[:, 0], draws), config.augment)
    return found


def write_neighbours(path: Path, source: Source, neighbours: Integers, seed: int) -> None:
    """Write the sheet of neighbours as PNG, whole or not at all."""
    sheet = neighbour_sheet(source, neighbours, seed)
    if sheet is not None:
        unfinished = path.with_name(path.name + ".tmp")
        sheet.save(unfinished, "PNG")
        unfinished.replace(path)


def neighbour_sheet(
    source: Source, neighbours: Integers, seed: int, images: int = 10
) -> Image.Image | None:
    """Rows of an image and its nearest neighbours, framed by whether they are of its class.

    None if there is no image that can be read together with its neighbours.
    """
    order = np.random.default_rng(seed).permutation(len(source)).tolist()
    size = _NEIGHBOUR_TILE
    rows: list[list[Tensor]] = []
    frames: list[list[str]] = []
    for index in order:
        if len(rows) == images:
            break
        shown = [index, *neighbours[index].tolist()]
        try:
            rows.append([centre_crop(source.image(i), size, source.channels) for i in shown])
        except UnreadableImage:
            continue
        if source.labels is not None:
            same = (source.labels[shown] == source.labels[index]).tolist()
            frames.append([_SAME_CLASS if s else _OTHER_CLASS for s in same])
    return _sheet(rows, size, frames) if rows else None


def _visible(views: Tensor, augment: AugmentConfig) -> Tensor:
    """Undo the normalisation: bytes again."""
    channels = views.shape[1]
    mean, std = (torch.tensor(v[:channels])[:, None, None] for v in (augment.mean, augment.std))
    return ((views * std + mean).clamp(0, 1) * 255).round().to(torch.uint8)


def _sheet(
    rows: list[list[Tensor]], size: int, frames: Sequence[Sequence[str]] = ()
) -> Image.Image:
    """Tiles in rows, the first of each set apart; small ones stay smaller, some are framed."""
    tile = size * max(1, -(-_SMALLEST_TILE // size))
    step = tile + _GAP
    height = len(rows) * step + (3 * _GAP if frames else _GAP)
    sheet = Image.new("RGB", (len(rows[0]) * step + 2 * _GAP, height), "white")
    draw = ImageDraw.Draw(sheet)
    for down, row in enumerate(rows):
        for across, pixels in enumerate(row):
            array = pixels.permute(1, 2, 0).numpy()
            picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
            # A wider gap sets the originals apart from their views.
            left = _GAP + across * step + (_GAP if across else 0)
            top = _GAP + down * step
            side = picture.width * tile // size
            sheet.paste(picture.resize((side, side), Image.Resampling.NEAREST), (left, top))
            if frames and across:
                far = side + _FRAME - 1
                box = (left - _FRAME, top - _FRAME, left + far, top + far)
                draw.rectangle(box, outline=frames[down][across], width=_FRAME)
    line = step + _GAP
    draw.line([(line, 0), (line, len(rows) * step)], fill="black", width=2)
    if frames:
        draw.text((_GAP, len(rows) * step + _GAP), _LEGEND, fill="black")
    return sheet
