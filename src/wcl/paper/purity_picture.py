"""Gains against purity as a picture, with marks that can be told apart without colors too."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

from wcl.paper.cells import ResultStore
from wcl.paper.purity import Point, gains
from wcl.system.files import atomic_write
from wcl.system.pictures import FAINT, INK, text_width, write

_FEWEST = 2  # points
_SMALLER = 2  # all is drawn so many times as large as it is shown, which smooths the edges
_WIDTH, _HEIGHT = 980, 1080  # of a panel
_LEFT, _TOP, _RIGHT, _BOTTOM = 150, 390, 90, 260
_BETWEEN = 150
_DOT = 14
_TITLE, _WORDS = 56, 38
_GRID = "#e4e4e4"
_MOST_TICKS = 7
# Colors that color-blind readers can tell apart (Okabe and Ito), and how much of the middle is
# left white.
_FAMILIES = {
    "WCL": ("#0072b2", 0.0),
    "WCL, one part changed": ("#d55e00", 0.62),
    "WCL with crops": ("#009e73", 0.36),
}
# What is measured, in words, and the corners of the mark; none is a circle.
_DATA = {
    "digits": ("digits, 3 labels a class", 0),
    "cifar10": ("CIFAR-10, linear probe", 4),
    "cifar100": ("CIFAR-100, linear probe", 3),
    "imagenet": ("ImageNet or a part of it, linear probe", 5),
    "made-up": ("made-up pictures, linear probe", 6),
}
_NOTE = (
    "A mark is a run against a SimCLR of its seed; shares are means over the last quarter of the "
    "run's epochs."
)
_PANELS = {
    "purity": "images that are of their group's main class",
    "pair_precision": "pairs within a group that are of one class",
    "pair_recall": "pairs of one class that are within a group",
}


class _Axis(NamedTuple):
    """From values to pixels."""

    ticks: list[float]
    start: float
    """Where the first of them is, in pixels."""
    end: float
    """Where the last is."""

    def at(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def write_gains(result_store: ResultStore) -> Path | None:
    """Draw the points of a folder and write them down, over those before; where the picture is.

    None if there are too few of them.
    """
    points = gains(result_store)
    if len(points) < _FEWEST:
        return None
    picture = result_store.folder / "gain-by-purity.png"
    with atomic_write(picture.with_suffix(".csv")) as numbers, atomic_write(picture) as drawn:
        with numbers.open("w", newline="") as file:
            csv.writer(file).writerows([Point._fields, *points])
        draw(points).save(drawn, "PNG")
    return picture


def draw(points: Sequence[Point]) -> Image.Image:
    """Panels that share the gain upwards; to the right what weak labels are worth, each its way."""
    between = (len(_PANELS) - 1) * _BETWEEN
    width = _LEFT + len(_PANELS) * _WIDTH + between + _RIGHT
    height = _TOP + _HEIGHT + _BOTTOM
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    write(pen, (_LEFT, 48), "Gain over SimCLR against what the weak labels are worth", _TITLE)
    _legend(pen, points)
    write(pen, (_LEFT, _TOP - 66), "gain in percentage points", _WORDS, FAINT)
    up = _Axis(ticks([0, *(point.gain for point in points)]), _TOP + _HEIGHT, _TOP)
    for number, (name, title) in enumerate(_PANELS.items()):
        left = _LEFT + number * (_WIDTH + _BETWEEN)
        shares = [100 * getattr(point, name) for point in points]
        across = _Axis(ticks(shares), left, left + _WIDTH)
        _grid(pen, across, up, title)
        for share, point in zip(shares, points, strict=True):
            _mark(pen, (across.at(share), up.at(point.gain)), point.data, point.family)
    write(pen, (_LEFT, height - 80), _NOTE, _WORDS, FAINT)
    return sheet.resize((width // _SMALLER, height // _SMALLER), Image.Resampling.LANCZOS)


def ticks(values: Sequence[float]) -> list[float]:
    """Round numbers, at most seven, from below all values to above them.

    >>> ticks([0, 3.3, -0.4])
    [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    >>> ticks([71, 96])
    [70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 100.0]
    >>> ticks([50, 50])
    [49.0, 49.5, 50.0, 50.5, 51.0]
    """
    low, high = min(values), max(values)
    if high - low < 1:
        low, high = low - 1, high + 1
    power = 10.0 ** math.floor(math.log10(high - low))
    for step in (power / 10, power / 5, power / 2, power, 2 * power):
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < _MOST_TICKS:
            break
    return [number * step for number in range(first, last + 1)]


def _grid(pen: ImageDraw.ImageDraw, across: _Axis, up: _Axis, title: str) -> None:
    """A line and a number at every tick, a strong line at no gain, and the title below."""
    for value in across.ticks:
        x, words = across.at(value), f"{value:g}%"
        pen.line([(x, up.start), (x, up.end)], _GRID, 2)
        _centerd(pen, x, up.start + 20, words, FAINT)
    for value in up.ticks:
        y, words = up.at(value), f"{value:+g}" if value else "0"
        pen.line([(across.start, y), (across.end, y)], _GRID, 2)
        place = across.start - 24 - text_width(words, _WORDS)
        write(pen, (place, y - _WORDS * 0.6), words, _WORDS, FAINT)
    pen.line([(across.start, up.at(0)), (across.end, up.at(0))], INK, 4)
    _centerd(pen, (across.start + across.end) / 2, up.start + 90, title, INK)


def _centerd(pen: ImageDraw.ImageDraw, x: float, y: float, words: str, color: str) -> None:
    write(pen, (x - text_width(words, _WORDS) / 2, y), words, _WORDS, color)


def _legend(pen: ImageDraw.ImageDraw, points: Sequence[Point]) -> None:
    """What the fillings mean and, in a second line, what the shapes mean, as far as they occur."""
    families, data = {point.family for point in points}, {point.data for point in points}
    fillings = [(name, "digits", name) for name in _FAMILIES if name in families]
    shapes = [(words, name, "") for name, (words, _) in _DATA.items() if name in data]
    for y, line in ((150, fillings), (220, shapes)):
        x = _LEFT
        for words, shape, family in line:
            _mark(pen, (x + _DOT, y + _WORDS * 0.6), shape, family)
            write(pen, (x + 3 * _DOT, y), words, _WORDS)
            x += 3 * _DOT + math.ceil(text_width(words, _WORDS)) + 60


def _mark(
    pen: ImageDraw.ImageDraw, place: tuple[float, float], data: str, family: str = ""
) -> None:
    """A shape by the data, colored and filled by the family; gray without one."""
    color, white = _FAMILIES.get(family, (FAINT, 0.0))
    corners = _DATA[data][1]
    for radius, paint in ((_DOT + 4, "white"), (_DOT, color), (_DOT * white, "white")):
        if radius and corners:
            pen.regular_polygon((place, radius * 1.25), corners, fill=paint)
        elif radius:
            pen.circle(place, radius, fill=paint)
