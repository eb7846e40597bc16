"""The picture of groups of images: every image is on it, in order, and little of it is blank."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from wcl.apps.tile_sheet import Row, Tile, tile_sheet

LEAD = (250, 0, 0)


def color(number: int) -> tuple[int, int, int]:
    return 10, number, 90


def sheet_of(sizes: list[int], columns: int = 8, lead: bool = False) -> Image.Image:
    """Rows of so many tiles each, all of another color."""
    numbers = iter(range(sum(sizes)))
    rows = [
        Row(
            f"{size} images",
            [Tile(whole(color(next(numbers))), "0.99", "name.jpg") for _ in range(size)],
            Tile(whole(LEAD), "query", "query.jpg") if lead else None,
        )
        for size in sizes
    ]
    return tile_sheet("Groups", rows, columns)


def whole(of: tuple[int, int, int]) -> Image.Image:
    return Image.new("RGB", (160, 160), of)


def places(sheet: Image.Image, of: tuple[int, int, int]) -> list[tuple[int, int]]:
    """The upper left corners of the tiles of a color, each of which must be whole."""
    regions, _ = ndimage.label((np.asarray(sheet) == of).all(axis=2))
    found = ndimage.find_objects(regions)
    sides = {side.stop - side.start for place in found for side in place}
    assert sides <= {160}
    return [(down.start, across.start) for down, across in found]


SIZES = [[2], [2] * 2, [2] * 3, [2] * 5, [2] * 20, [3, 2, 2], [8, 5, 3, 3, 2, 2, 2, 2], [8]]


@pytest.mark.parametrize("sizes", [*SIZES, [8, 2]])
def test_every_tile_is_there_in_the_order_of_reading(sizes: list[int]) -> None:
    sheet = sheet_of(sizes)
    found = [places(sheet, color(number)) for number in range(sum(sizes))]
    assert [len(place) for place in found] == [1] * sum(sizes)
    corners = [corner for (corner,) in found]
    assert corners == sorted(corners)


@pytest.mark.parametrize("sizes", SIZES)
def test_little_of_it_is_blank(sizes: list[int]) -> None:
    """Titles and captions take a good third of what surrounds the tiles."""
    sheet = sheet_of(sizes)
    assert sum(sizes) * 160**2 > 0.4 * sheet.width * sheet.height


@pytest.mark.parametrize("sizes", [[12, 12], [2, 2, 2], [1]])
def test_the_tile_that_leads_a_row_stands_before_it(sizes: list[int]) -> None:
    sheet = sheet_of(sizes, columns=6, lead=True)
    leads = places(sheet, LEAD)
    assert len(leads) == len(sizes)
    firsts = [sum(sizes[:row]) for row in range(len(sizes))]
    for (top, left), first, size in zip(leads, firsts, sizes, strict=True):
        tiles = [places(sheet, color(first + n))[0] for n in range(size)]
        assert tiles[0][0] == top
        assert all(across > left + 160 for _, across in tiles)
        lines = sorted({down for down, _ in tiles})
        assert [sum(down == line for down, _ in tiles) for line in lines] == (
            [6, 6] if size == 12 else [size]
        )
