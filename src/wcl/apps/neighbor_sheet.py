"""A picture of images and their nearest neighbors, one image per row."""

import numpy as np
from PIL import Image

from wcl.apps.contact_sheet import Row, Tile, contact_sheet, thumbnail
from wcl.data import Source
from wcl.data.decode import UnreadableImage
from wcl.ops.randomness import Integers
from wcl.system.paths import one_line

# Blue and orange, which color-blind readers can tell apart.
_SAME_CLASS, _OTHER_CLASS = "#0072b2", "#e69f00"


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
    image = thumbnail(source.image(index), source.levels)
    if source.labels is None:
        return Tile(image)
    label = source.labels[index]
    name = one_line(source.classes[int(label)]) if source.classes else ""
    if index == query:
        return Tile(image, name)
    return Tile(image, name, frame=_SAME_CLASS if label == source.labels[query] else _OTHER_CLASS)
