"""Contact sheets: every image is there, in order, little is blank and text fits."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from wcl.apps.contact_sheet import Row, Tile, contact_sheet

LEAD = (250, 0, 0)


def color(number: int) -> tuple[int, int, int]:
    return 10, number, 90


def sheet_of(sizes: list[int], columns: int = 8, lead: bool = False) -> Image.Image:
    """Rows of so many tiles each, all of another color."""
    numbers = iter(range(sum(sizes)))
    first = [[Tile(whole(LEAD), "query", "query.jpg")]] if lead else []
    rows = [
        Row(f"{size} images", [*first, [tile(next(numbers)) for _ in range(size)]])
        for size in sizes
    ]
    return contact_sheet("Groups", rows, columns)


def tile(number: int) -> Tile:
    return Tile(whole(color(number)), "0.99", "name.jpg")


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


@pytest.mark.parametrize("size", [(160, 160), (160, 40), (40, 160)])
def test_long_names_stay_below_their_tiles_and_long_headings_on_the_sheet(
    size: tuple[int, int],
) -> None:
    long = "holidays/" + "image" * 300
    sheets = [
        np.asarray(
            contact_sheet("", [Row("", [[Tile(Image.new("RGB", size, LEAD), name=name)]])], 1)
        )
        for name in (long, "x")
    ]
    assert sheets[0].shape == sheets[1].shape
    margins = np.concatenate([sheets[0][:, :12], sheets[0][:, -12:]])
    assert (margins == 255).all()
    wide = contact_sheet(long, [Row("", [[tile(1)]])], 1)
    assert 900 < wide.width < 1100
    assert (np.asarray(wide)[:, -12:] == 255).all()


def test_a_frame_surrounds_its_image() -> None:
    image, blue = Image.new("RGB", (100, 60), LEAD), (0, 0, 250)
    sheet = np.asarray(contact_sheet("", [Row("", [[Tile(image, frame="#0000fa")]])], 1))
    regions, _ = ndimage.label((sheet == LEAD).all(axis=2))
    [(down, across)] = ndimage.find_objects(regions)
    framed = sheet[down.start - 3 : down.stop + 3, across.start - 3 : across.stop + 3]
    assert framed.shape == (66, 106, 3)
    assert ((framed == blue).all(axis=2) == ~(framed == LEAD).all(axis=2)).all()
    assert (sheet == blue).all(axis=2).sum() == 66 * 106 - 60 * 100
