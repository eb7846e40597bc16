"""Plots of costs by size with the fitted power laws."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.growth.fit import power_law, upper_half
from benchmarks.growth.series import PLOTS, Plot, points
from wcl.system.plots import PALETTE, plot_style, save_figure

_COLORS = 64
_PANELS = {"seconds": "seconds", "gb": "peak memory, GB"}


def draw(figures: Mapping[str, float], folder: Path) -> list[Path]:
    """Write a plot for each kind of size, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, plot in PLOTS.items():
        file = folder / f"growth-{name}.png"
        save_figure(_figure(plot, figures), file, ".png")
        Image.open(file).quantize(_COLORS).save(file, optimize=True)  # a third of the size
        files.append(file)
    return files


@plot_style()
def _figure(plot: Plot, figures: Mapping[str, float]) -> Figure:
    figure = Figure((8, 4.2), layout="constrained")
    for panel, (kind, title) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        panel.set(title=title, xlabel=plot.axis, xscale="log", yscale="log")
        panel.grid()
        for color, (name, series) in zip(PALETTE, plot.series.items(), strict=False):
            _add(panel, color, series.label, points(figures, name, kind))
        panel.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return figure


def _add(panel: Axes, color: str, label: str, costs: Mapping[int, float]) -> None:
    fitted = upper_half(list(costs))
    law = power_law({size: costs[size] for size in fitted})
    panel.plot([*costs], [*costs.values()], "o", color=color, markersize=3)
    line = [law.at(size) for size in fitted]
    panel.plot(fitted, line, color=color, linewidth=1.2, label=f"{label}: {law.exponent:.2f}")
