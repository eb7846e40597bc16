"""The sheets of views and of neighbors, tile by tile, with images each of one color."""

from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor
from scipy import ndimage
from torch import Tensor

from wcl.apps.contact_sheet import RULE
from wcl.apps.views import neighbor_sheet, view_sheet, write_neighbors
from wcl.config import AugmentConfig, CropsConfig, PretrainConfig
from wcl.data import ArraySource
from wcl.system import progress

BLUE, ORANGE, WHITE = (ImageColor.getrgb(name) for name in ("#0072b2", "#e69f00", "white"))
NEIGHBORS = (np.arange(12)[:, None] + np.array([1, 2, 5])) % 12


def colors(images: int = 12, channels: int = 3) -> Tensor:
    """Of each image, all different: (N, C)."""
    step = torch.arange(images)[:, None] * torch.tensor([20, 7, 3])
    return ((40 + step) % 256)[:, :channels]


def plain_images(labels: Tensor | None = None, channels: int = 3) -> ArraySource:
    pixels = colors(channels=channels).to(torch.uint8)[:, :, None, None].expand(-1, -1, 20, 20)
    return ArraySource("made", pixels.contiguous(), labels)


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


def test_where_nothing_can_be_read_there_is_no_sheet_and_no_file(tmp_path: Path) -> None:
    source = plain_images()
    source.unreadable = dict.fromkeys(range(12), "cut short")
    assert neighbor_sheet(source, NEIGHBORS, seed=0) is None
    write_neighbors(tmp_path / "neighbors.png", source, NEIGHBORS, seed=0)
    assert not list(tmp_path.iterdir())


def test_the_sheet_written_is_the_sheet_made_in_the_place_of_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "neighbors.png"
    path.write_bytes(b"older")
    write_neighbors(path, plain_images(), NEIGHBORS, seed=5)
    made = neighbor_sheet(plain_images(), NEIGHBORS, seed=5)
    assert made is not None
    with Image.open(path) as written:
        assert np.array_equal(np.asarray(written), np.asarray(made))
    assert list(tmp_path.iterdir()) == [path]


def sheet_of_views(crops: int, views: int = 3) -> tuple[Image.Image, list[tuple[slice, slice]]]:
    """A sheet of four images and where their tiles are, in the order of reading."""
    plain = AugmentConfig(jitter=0, grayscale=0, blur=0)
    small = CropsConfig(count=crops, size=16)
    config = PretrainConfig(data="made", image_size=32, augment=plain, crops=small)
    sheet = view_sheet(plain_images(), config, images=4, views=views)
    pixels = np.asarray(sheet).astype(int)
    places = []
    for color in colors().tolist():
        # Normalizing and undoing it may round.
        regions, _ = ndimage.label((abs(pixels - color) <= 1).all(axis=2))
        found = ndimage.find_objects(regions)
        places += [place for place in found if place[0].stop - place[0].start >= 40]
    return sheet, sorted(places, key=lambda place: (sum_of(place[0]), sum_of(place[1])))


def sum_of(side: slice) -> int:
    """Twice its middle."""
    return int(side.start + side.stop)


def test_a_sheet_of_views_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE", 0.0)
    monkeypatch.setattr(progress, "_BETWEEN_LINES", 0.0)
    sheet_of_views(crops=0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"making views: {n}%" for n in (25, 50, 75)]


@pytest.mark.parametrize("crops", [0, 1, 4])
def test_small_crops_stand_behind_the_views_half_as_large_and_centered(crops: int) -> None:
    sheet, places = sheet_of_views(crops)
    assert len(places) == 4 * (1 + 3 + crops)
    rows = [places[start : start + 4 + crops] for start in range(0, len(places), 4 + crops)]
    for row in rows:
        assert [across.stop - across.start for _, across in row] == [96] * 4 + [48] * crops
        assert [down.stop - down.start for down, _ in row] == [96] * 4 + [48] * crops
        assert {sum_of(down) for down, _ in row} == {sum_of(row[0][0])}
        inside = [(across.start, across.stop) for _, across in row]
        assert all(a[1] < b[0] for a, b in pairwise(inside))
        assert inside[-1][1] < sheet.width


@pytest.mark.parametrize("crops", [0, 1, 4])
def test_a_line_divides_the_image_its_views_and_its_crops(crops: int) -> None:
    sheet, places = sheet_of_views(crops)
    middle = np.asarray(sheet)[sum_of(places[0][0]) // 2]
    ruled = np.flatnonzero((middle == ImageColor.getrgb(RULE)).all(axis=1))
    lines = [group.mean() for group in np.split(ruled, np.flatnonzero(np.diff(ruled) > 1) + 1)]
    first = [across for _, across in places[: 4 + crops]]
    between = [(first[0].stop, first[1].start)]
    if crops:
        between.append((first[3].stop, first[4].start))
    assert len(lines) == len(between)
    assert all(a < line < b for line, (a, b) in zip(lines, between, strict=True))


def test_text_stands_above_the_views_and_the_names_of_classes_below_neighbors() -> None:
    sheet, places = sheet_of_views(crops=4)
    assert (np.asarray(sheet)[: places[0][0].start] < 100).all(axis=2).any()
    labels = torch.zeros(12, dtype=torch.int64)
    named, unnamed = (
        neighbor_sheet(ArraySource("made", plain_images().pixels, labels, classes), NEIGHBORS, 0)
        for classes in (["cat"], ())
    )
    assert named is not None and unnamed is not None
    assert named.height > unnamed.height and named.width == unnamed.width
