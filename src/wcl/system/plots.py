"""What static plots share: their style, a color-blind-safe palette, and how they are saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT_SUFFIXES = (".png", ".pdf", ".svg")

PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"]
"""Okabe and Ito's eight colors, which color-blind readers can tell apart, and two more."""
PALETTE += ["#d55e00", "#f0e442", "#000000", "#999999", "#7b3294"]

_DPI = 200
_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,  # TrueType: publishers reject matplotlib's default, Type 3
    "svg.hashsalt": "wcl",  # the same plot gives the same file
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply the style while a figure is drawn, whatever the user's matplotlib settings are.

    Also works as a decorator.
    """
    from matplotlib import style

    with style.context(["default", _STYLE]):
        yield


def save_figure(figure: "Figure", path: Path, suffix: str) -> None:
    """Write a figure to `path` in the format of `suffix`, one of PLOT_SUFFIXES."""
    dates = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with plot_style():
        figure.savefig(path, format=suffix[1:], dpi=_DPI, metadata=dates[suffix])
