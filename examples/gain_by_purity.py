"""Plot what the rows of tables gain over SimCLR against the quality of their weak labels.

    wcl reproduce mechanisms --scale digits
    python examples/gain_by_purity.py runs/reproduce

The plot has a marker for every row and seed of all tables in the folder. Two tables that compare
the same two runs share one. It is written to gain-by-purity.png in that folder, its data to
gain-by-purity.csv.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patheffects import withStroke

from wcl.paper.purity import Point
from wcl.system.plots import plot_style, save_figure

# Colors that color-blind readers can tell apart, and fills that need no colors.
_FAMILIES: dict[str, tuple[str, Literal["full", "none", "bottom"]]] = {
    "WCL": ("#0072b2", "full"),
    "WCL, one part changed": ("#d55e00", "none"),
    "WCL with crops": ("#009e73", "bottom"),
}
# What is measured on each data set, and its marker.
_DATA = {
    "digits": ("digits, 3 labels per class", "o"),
    "cifar10": ("CIFAR-10, linear probe", "s"),
    "cifar100": ("CIFAR-100, linear probe", "^"),
    "imagenet": ("ImageNet or a part of it, linear probe", "D"),
}
_NOTE = (
    "A marker is a run compared with SimCLR of the same seed. "
    "Shares are means over the last quarter of the run's epochs."
)
_PANELS = {
    "purity": "images of their group's main class (%)",
    "pair_precision": "pairs within a group that share a class (%)",
    "pair_recall": "pairs of one class within a group (%)",
}


def read_points(folder: Path) -> list[Point]:
    """Return the points of all tables in a folder, except those of the scale smoke."""
    points: dict[tuple[str, str], Point] = {}
    for file in sorted(folder.glob("*-*.json")):
        if not file.stem.endswith("-smoke"):
            for values in json.loads(file.read_text(encoding="utf-8"))["points"]:
                point = Point(**values)
                points.setdefault((point.run, point.baseline), point)
    return list(points.values())


@plot_style()
def draw(points: Sequence[Point]) -> Figure:
    """Draw one panel per measure of the weak labels' quality; all share the axis of the gain."""
    figure = Figure((11, 4.6), layout="constrained")
    figure.suptitle("Gain over SimCLR against the quality of the weak labels", fontsize=11)
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, (name, label) in zip(panels, _PANELS.items(), strict=True):
        axes.grid()
        axes.axhline(0, color="black", linewidth=1)
        axes.set_xlabel(label)
        axes.margins(x=0.08)
        for point in points:
            share = 100 * getattr(point, name)
            axes.plot([share], [point.gain], **_marker(point.data, point.family))
    panels[0].set_ylabel("gain in percentage points")
    handles = _legend(points)
    figure.legend(
        handles=handles,
        title=_NOTE,
        title_fontsize=8,
        loc="outside lower center",
        ncols=len(handles) if len(handles) <= 5 else 4,
        handletextpad=0.2,
    )
    return figure


def _legend(points: Sequence[Point]) -> list[Line2D]:
    """Return the markers' meanings, as far as they occur: colors and fills, then shapes."""
    families, data = {point.family for point in points}, {point.data for point in points}
    fills = [(name, "digits", name) for name in _FAMILIES if name in families]
    shapes = [(label, name, "") for name, (label, _) in _DATA.items() if name in data]
    return [
        Line2D([], [], label=label, **_marker(name, family))
        for label, name, family in [*fills, *shapes]
    ]


def _marker(data: str, family: str) -> dict[str, Any]:
    """Return a marker's shape by the data, and its color and fill by the family, if any."""
    color, fill = _FAMILIES.get(family, ("#555555", "full"))
    return {
        "marker": MarkerStyle(_DATA[data][1], fillstyle=fill, joinstyle="round"),
        "linestyle": "none",
        "color": color,
        "markerfacecoloralt": "white",
        "markersize": 6,
        "path_effects": [withStroke(linewidth=2.2, foreground="white")],  # overlaps stay visible
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder of `wcl reproduce`, its --out")
    folder: Path = parser.parse_args().folder
    points = read_points(folder)
    if not points:
        sys.exit(f"{folder}: has no table with rows compared with SimCLR; run wcl reproduce first")
    with (folder / "gain-by-purity.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Point._fields, *points])
    save_figure(draw(points), folder / "gain-by-purity.png", ".png")
    print(f"wrote {folder / 'gain-by-purity.png'} and .csv: {len(points)} points")


if __name__ == "__main__":
    main()
