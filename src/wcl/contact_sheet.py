"""A picture of what the augmentations do: one row per image, the original and some views of it."""

import dataclasses
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from wcl.augment import ViewMaker
from wcl.checks import check
from wcl.config import AugmentConfig, PretrainConfig, ViewsConfig
from wcl.data import Source, in_memory, open_source
from wcl.data.decode import UnreadableImage, centre_crop
from wcl.data.loader import photo_crops
from wcl.errors import InputError
from wcl.randomness import Draws

_SMALLEST_TILE = 96
_GAP = 4


def views(config: ViewsConfig) -> Path:
    """`wcl views SRC`: write the sheet of a run's augmentations on the user's own images."""
    check(dataclasses.replace(config, out="views.png"))
    out = Path(config.out or "views.png").expanduser()
    if out.exists():
        raise InputError(f"{out}: exists already; choose another --out")
    if out.suffix.lower() != ".png" or not out.parent.is_dir():
        raise InputError(f"--out: {out} must be a .png file in a folder that exists")
    for name in ("images", "views"):
        if getattr(config, name) < 1:
            raise InputError(f"--{name}: must be at least 1, not {getattr(config, name)}")
    source = in_memory(open_source(config.data))
    contact_sheet(source, config, config.images, config.views).save(out)
    print(f"wrote {out}: each row is an image and {config.views} views of it")
    return out


def contact_sheet(
    source: Source, config: PretrainConfig, images: int = 8, views: int = 8
) -> Image.Image:
    """Rows of an original and its augmented views, as training with these settings sees them."""
    maker = ViewMaker(config.augment, config.size, source.channels)
    order = np.random.default_rng(config.seed).permutation(len(source)).tolist()
    rows: list[list[Tensor]] = []
    for index in order:
        if len(rows) == images:
            break
        try:
            original = centre_crop(source.image(index), config.size, source.channels)
            rows.append([original, *_views(source, index, maker, config, views)])
        except UnreadableImage:
            continue
    if not rows:
        raise InputError(f"{source.name}: none of its images can be read")
    return _sheet(rows, config.size)


def _views(
    source: Source, index: int, maker: ViewMaker, config: PretrainConfig, count: int
) -> list[Tensor]:
    """(C, size, size) bytes of each view."""
    rows = np.full(count, index, dtype=np.int64)
    draws = Draws(config.seed, 0, rows, np.arange(count, dtype=np.int64))
    crops = photo_crops(source.image(index), maker, draws)
    return list(_visible(maker.from_crops(crops, draws), config.augment))


def _visible(views: Tensor, augment: AugmentConfig) -> Tensor:
    """Undo the normalisation: bytes again."""
    channels = views.shape[1]
    mean, std = (torch.tensor(v[:channels])[:, None, None] for v in (augment.mean, augment.std))
    return ((views * std + mean).clamp(0, 1) * 255).round().to(torch.uint8)


def _sheet(rows: list[list[Tensor]], size: int) -> Image.Image:
    tile = size * max(1, -(-_SMALLEST_TILE // size))
    step = tile + _GAP
    sheet = Image.new("RGB", (len(rows[0]) * step + 2 * _GAP, len(rows) * step + _GAP), "white")
    for down, row in enumerate(rows):
        for across, pixels in enumerate(row):
            array = pixels.permute(1, 2, 0).numpy()
            picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
            # A wider gap sets the originals apart from their views.
            left = _GAP + across * step + (_GAP if across else 0)
            sheet.paste(
                picture.resize((tile, tile), Image.Resampling.NEAREST), (left, _GAP + down * step)
            )
    line = step + _GAP
    ImageDraw.Draw(sheet).line([(line, 0), (line, sheet.height)], fill="black", width=2)
    return sheet
