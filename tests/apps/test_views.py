"""The sheet of views, tile by tile, with images each of one color."""

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageColor
from scipy import ndimage

from plain_images import colors, plain_images
from wcl.apps.contact_sheet import RULE
from wcl.apps.views import view_sheet
from wcl.config import AugmentConfig, CropsConfig, PretrainConfig
from wcl.system import progress


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


def test_a_heading_stands_above_the_views() -> None:
    sheet, places = sheet_of_views(crops=4)
    assert (np.asarray(sheet)[: places[0][0].start] < 100).all(axis=2).any()
