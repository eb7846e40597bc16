"""The sheet of neighbors, tile by tile, with images each of one color."""

from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor
from scipy import ndimage

from plain_images import colors, plain_images
from wcl.apps.neighbor_sheet import neighbor_sheet
from wcl.data import ArraySource

BLUE, ORANGE, WHITE = (ImageColor.getrgb(name) for name in ("#0072b2", "#e69f00", "white"))
NEIGHBORS = (np.arange(12)[:, None] + np.array([1, 2, 5])) % 12


@dataclass(frozen=True)
class Tile:
    image: int
    frame: tuple[int, ...]
    """The color on all its sides."""


def tiles_of(sheet: Image.Image, channels: int = 3) -> list[list[Tile]]:
    """The rows of a sheet, read from its pixels wherever the tiles may lie."""
    pixels = np.asarray(sheet)
    places: dict[int, list[tuple[int, Tile]]] = {}
    for image, color in enumerate(colors(channels=channels).expand(-1, 3).tolist()):
        regions, _ = ndimage.label((pixels == color).all(axis=2))
        for down, across in ndimage.find_objects(regions):
            if min(down.stop - down.start, across.stop - across.start) < 50:
                continue  # a coincidence, no tile
            middle = (down.start + down.stop) // 2, (across.start + across.stop) // 2
            around = {
                tuple(pixels[down.start - 1, middle[1]].tolist()),
                tuple(pixels[down.stop, middle[1]].tolist()),
                tuple(pixels[middle[0], across.start - 1].tolist()),
                tuple(pixels[middle[0], across.stop].tolist()),
            }
            assert len(around) == 1
            tile = Tile(image, around.pop())
            places.setdefault(down.start, []).append((across.start, tile))
    return [
        [tile for _, tile in sorted(row, key=itemgetter(0))] for _, row in sorted(places.items())
    ]


def images_of(sheet: Image.Image, channels: int = 3) -> list[list[int]]:
    return [[tile.image for tile in row] for row in tiles_of(sheet, channels)]


def rows_of(images: list[int]) -> list[list[int]]:
    """What the sheet should show of these."""
    return [[image, *NEIGHBORS[image].tolist()] for image in images]


def order_of(seed: int, images: int = 12) -> list[int]:
    return np.random.default_rng(seed).permutation(images).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_row_is_an_image_and_its_neighbors_in_order(channels: int) -> None:
    sheet = neighbor_sheet(plain_images(channels=channels), NEIGHBORS, seed=3, images=5)
    assert sheet is not None
    assert images_of(sheet, channels) == rows_of(order_of(3)[:5])


@pytest.mark.parametrize("unreadable", [[], [4, 9]])
def test_frames_tell_neighbors_of_the_class_from_others(unreadable: list[int]) -> None:
    labels = torch.tensor([0, 0, 1, 2, 1, 0, 0, 2, 2, 1, 1, 0])
    source = plain_images(labels)
    source.unreadable = dict.fromkeys(unreadable, "cut short")
    sheet = neighbor_sheet(source, NEIGHBORS, seed=0, images=12)
    assert sheet is not None
    frames = set()
    for first, *others in tiles_of(sheet):
        assert first.frame == WHITE
        for tile in others:
            same = labels[tile.image] == labels[first.image]
            assert tile.frame == (BLUE if same else ORANGE)
            frames.add(tile.frame)
    assert frames == {BLUE, ORANGE}


def test_without_labels_there_are_no_frames() -> None:
    sheet = neighbor_sheet(plain_images(), NEIGHBORS, seed=0, images=4)
    assert sheet is not None
    assert {tile.frame for row in tiles_of(sheet) for tile in row} == {WHITE}


def test_an_image_that_cannot_be_read_is_in_no_row() -> None:
    source = plain_images()
    source.unreadable = {4: "cut short", 9: "not an image"}
    sheet = neighbor_sheet(source, NEIGHBORS, seed=1, images=12)
    whole = [row for row in rows_of(order_of(1)) if not {4, 9} & set(row)]
    assert sheet is not None
    assert images_of(sheet) == whole


def test_fewer_images_than_rows_wanted_are_all_shown() -> None:
    sheet = neighbor_sheet(plain_images(), NEIGHBORS, seed=0, images=50)
    assert sheet is not None
    assert images_of(sheet) == rows_of(order_of(0))


def test_where_nothing_can_be_read_there_is_no_sheet() -> None:
    source = plain_images()
    source.unreadable = dict.fromkeys(range(12), "cut short")
    assert neighbor_sheet(source, NEIGHBORS, seed=0) is None


def test_the_names_of_classes_stand_below_their_images() -> None:
    labels = torch.zeros(12, dtype=torch.int64)
    named, unnamed = (
        neighbor_sheet(ArraySource("made", plain_images().pixels, labels, classes), NEIGHBORS, 0)
        for classes in (["cat"], ())
    )
    assert named is not None and unnamed is not None
    assert named.height > unnamed.height and named.width == unnamed.width
