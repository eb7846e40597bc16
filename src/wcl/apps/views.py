"""Pictures of augmented views and of nearest neighbors, one image per row."""

import dataclasses
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from wcl.apps.contact_sheet import Row, Tile, contact_sheet, thumbnail, write_sheet
from wcl.config import PretrainConfig, ViewsConfig
from wcl.config.validation import check
from wcl.data import Source, first_classes, in_memory, open_source
from wcl.data.decode import UnreadableImage, center_crop
from wcl.data.loader import views_of
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError
from wcl.system.files import new_file
from wcl.system.paths import one_line
from wcl.system.progress import track
from wcl.training.views import view_specs

_MIN_TILE = 96
# Blue and orange, which color-blind readers can tell apart.
_SAME_CLASS, _OTHER_CLASS = "#0072b2", "#e69f00"


def views(config: ViewsConfig) -> Path:
    """Write a picture of a run's augmentations on the user's own images (`wcl views SRC`)."""
    check(dataclasses.replace(config, out="views.png"))
    out = new_file(config.out or "views.png", (".png",))
    for name in ("images", "views"):
        if getattr(config, name) < 1:
            raise InputError(f"--{name}: must be at least 1, not {getattr(config, name)}")
    source = in_memory(first_classes(open_source(config.data), config.classes))
    write_sheet(out, view_sheet(source, config, config.images, config.views))
    print(f"wrote {out}: each row is {_description(config, config.views)}")
    return out


def view_sheet(
    source: Source, config: PretrainConfig, images: int = 8, views: int = 8
) -> Image.Image:
    """Draw rows of an image and its augmented views, as training with these settings sees them."""
    found = islice(_rows(source, config, views), images)
    rows = list(track(found, "making views", min(images, len(source))))
    if not rows:
        raise InputError(f"{source.name}: none of its images can be read")
    heading = f"Each row: {_description(config, views)}"
    columns = max(views, config.crops.count)
    return contact_sheet(heading, rows, columns, config.image_size * _zoom(config))


def _description(config: PretrainConfig, views: int) -> str:
    """Describe a row of the sheet."""
    parts = ["the image", _counted(views, "view", config.image_size)]
    if config.crops.count:
        parts.append(_counted(config.crops.count, "small crop", config.crop_size))
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _counted(count: int, kind: str, size: int) -> str:
    return f"{count} {kind}{'' if count == 1 else 's'} of {size} pixels"


def _zoom(config: PretrainConfig) -> int:
    return max(1, -(-_MIN_TILE // config.image_size))


def _rows(source: Source, config: PretrainConfig, count: int) -> Iterator[Row]:
    """Yield an image, its views and its small crops, for readable images in random order."""
    specs = view_specs(config, source.channels, count=count)
    for index in np.random.default_rng(config.seed).permutation(len(source)).tolist():
        try:
            original = center_crop(source.image(index), config.image_size, source.channels)
            batch = views_of(source, np.array([index], dtype=np.int64), specs, config.seed)
            if batch.skipped:
                continue
        except UnreadableImage:
            continue
        pairs = zip(specs, batch.views, strict=True)
        parts = [[original], *(list(spec.maker.to_pixels(views[:, 0])) for spec, views in pairs)]
        zoom = _zoom(config)
        yield Row("", [[Tile(_enlarged(view, zoom)) for view in part] for part in parts])


def _enlarged(pixels: Tensor, zoom: int) -> Image.Image:
    """Return (C, size, size) bytes as an image, enlarged by a whole factor."""
    array = pixels.permute(1, 2, 0).numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    return image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST)


def write_neighbors(path: Path, source: Source, neighbors: Integers, seed: int) -> None:
    """Write the picture of neighbors as PNG, unless no image can be read."""
    sheet = neighbor_sheet(source, neighbors, seed)
    if sheet is not None:
        write_sheet(path, sheet)


def neighbor_sheet(
    source: Source, neighbors: Integers, seed: int, images: int = 10
) -> Image.Image | None:
    """Draw rows of an image and its nearest neighbors, framed by whether they share its class.

    Args:
        source: the images.
        neighbors: (N, k) indices of each image's neighbors.
        seed: determines which images are shown.
        images: number of rows; images that cannot be read together with their neighbors are
            left out.

    Returns:
        The sheet, or None if no row is left.
    """
    rows: list[Row] = []
    for index in np.random.default_rng(seed).permutation(len(source)).tolist():
        if len(rows) == images:
            break
        try:
            tiles = [_neighbor_tile(source, i, index) for i in (index, *neighbors[index].tolist())]
        except UnreadableImage:
            continue
        rows.append(Row("", [tiles[:1], tiles[1:]]))
    if not rows:
        return None
    heading = "Images and their nearest neighbors"
    if source.labels is not None:
        heading += " (blue frame: same class, orange frame: another class)"
    return contact_sheet(heading, rows, neighbors.shape[1])


def _neighbor_tile(source: Source, index: int, query: int) -> Tile:
    image = thumbnail(source.image(index))
    if source.labels is None:
        return Tile(image)
    label = source.labels[index]
    name = one_line(source.classes[int(label)]) if source.classes else ""
    if index == query:
        return Tile(image, name)
    return Tile(image, name, frame=_SAME_CLASS if label == source.labels[query] else _OTHER_CLASS)
