"""`wcl views`: a picture of augmented views, one image per row."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from wcl.apps.contact_sheet import Row, Tile, contact_sheet, write_sheet
from wcl.config import PretrainConfig, ViewsConfig
from wcl.config.validation import check
from wcl.data import Source, first_classes, in_memory, open_source, with_format
from wcl.data.decode import UnreadableImage, center_crop, shown
from wcl.data.loader import views_of
from wcl.system.errors import InputError
from wcl.system.files import new_file
from wcl.system.progress import track
from wcl.training.levels import with_measured_levels
from wcl.training.views import view_specs

_MIN_TILE = 96


def views(config: ViewsConfig) -> Path:
    """Write a picture of a run's augmentations on the user's own images (`wcl views SRC`)."""
    check(config)
    out = new_file(config.out, (".png",))
    for name in ("images", "views"):
        if getattr(config, name) < 1:
            raise InputError(f"--{name}: must be at least 1, not {getattr(config, name)}")
    source = first_classes(open_source(config.data), config.classes)
    levels = with_measured_levels(config, source).levels
    source = in_memory(with_format(source, source.channels, levels))
    write_sheet(out, view_sheet(source, config, config.images, config.views))
    print(f"wrote {out}: each row is {_description(config, config.views)}")
    return out


def view_sheet(
    source: Source, config: PretrainConfig, images: int = 8, views: int = 8
) -> Image.Image:
    """Draw rows of an image and its augmented views, as training with these settings sees them."""
    zoom = max(1, -(-_MIN_TILE // config.image_size))
    found = islice(_rows(source, config, views, zoom), images)
    rows = list(track(found, "making views", min(images, len(source))))
    if not rows:
        raise InputError(f"{source.name}: none of its images can be read")
    heading = f"Each row: {_description(config, views)}"
    columns = max(views, config.crops.count)
    return contact_sheet(heading, rows, columns, config.image_size * zoom)


def _description(config: PretrainConfig, views: int) -> str:
    """Describe a row of the sheet."""
    parts = ["the image", _counted(views, "view", config.image_size)]
    if config.crops.count:
        parts.append(_counted(config.crops.count, "small crop", config.crop_size))
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _counted(count: int, kind: str, size: int) -> str:
    return f"{count} {kind}{'' if count == 1 else 's'} of {size} pixels"


def _rows(source: Source, config: PretrainConfig, count: int, zoom: int) -> Iterator[Row]:
    """Yield an image, its views and its small crops, for readable images in random order."""
    specs = view_specs(config, source.channels, count=count)
    for index in np.random.default_rng(config.seed).permutation(len(source)).tolist():
        try:
            original = center_crop(
                source.image(index), config.image_size, source.channels, source.levels
            )
        except UnreadableImage:
            continue
        batch = views_of(source, np.array([index], dtype=np.int64), specs, config.seed)
        pairs = zip(specs, batch.views, strict=True)
        parts = [[original], *(list(spec.maker.to_pixels(views[:, 0])) for spec, views in pairs)]
        yield Row("", [[Tile(_enlarged(view, zoom)) for view in part] for part in parts])


def _enlarged(pixels: Tensor, zoom: int) -> Image.Image:
    """Return (C, size, size) bytes as an image, enlarged by a whole factor."""
    return ImageOps.scale(shown(pixels), zoom, Image.Resampling.NEAREST)
