"""Table and plot of a race."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.race.job import SIDES
from wcl.system.files import atomic_write
from wcl.system.plots import PALETTE, plot_style, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]
"""Seconds and accuracy of the snapshots of a training."""
Results = Sequence[dict[str, Any]]
"""Side, seed and points of every training."""
_NAMES = {"ours": "wcl", "lightly": "lightly, SimCLR"}
_LINES = {"ours": "-", "lightly": "--"}
_SHARES = (0.25, 0.5, 0.75)


def write_results(folder: Path, results: Results, minutes: float, title: str) -> None:
    """Write race.md and race.png."""
    with atomic_write(folder / "race.md") as path:
        path.write_text(table(results, minutes, title), encoding="utf-8")
    with atomic_write(folder / "race.png") as path:
        save_figure(_plot(results, title), path, ".png")


def final_mean(results: Results, side: str) -> float:
    """Return the mean accuracy of a side's last snapshots."""
    return mean(points[-1][1] for points in _points(results, side))


def accuracy_at(points: Points, minutes: float) -> float:
    """Return the accuracy at a time, linear between snapshots; NaN before the first."""
    seconds, accuracies = zip(*points, strict=True)
    return float(np.interp(60 * minutes, seconds, accuracies, left=math.nan))


def table(results: Results, minutes: float, title: str) -> str:
    """Return the accuracies by time as a Markdown table: mean ± standard deviation of the seeds."""
    times = [share * minutes for share in _SHARES]
    heads = [f"{time:.3g} min" for time in times]
    lines = [f"k-NN accuracy in % ({title})", ""]
    lines += [f"| | {' | '.join(heads)} | end | end by seed | ended after |", "|---" * 7 + "|"]
    for side in SIDES:
        runs = _points(results, side)
        columns = [[accuracy_at(points, time) for points in runs] for time in times]
        columns.append([points[-1][1] for points in runs])
        by_seed = ", ".join(f"{100 * value:.1f}" for value in columns[-1])
        end = mean(points[-1][0] for points in runs) / 60
        cells = [_mean_and_spread(column) for column in columns]
        lines.append(f"| {_NAMES[side]} | {' | '.join(cells)} | {by_seed} | {end:.2f} min |")
    return "\n".join(lines) + "\n"


def _points(results: Results, side: str) -> list[Points]:
    return [run["points"] for run in results if run["side"] == side]


def _mean_and_spread(values: Sequence[float]) -> str:
    if any(map(math.isnan, values)):
        return "–"
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.1f}{spread}"


@plot_style()
def _plot(results: Results, title: str) -> "Figure":
    """Draw accuracy over minutes: a thin curve per training, a thick one for the mean of a side."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.5, 3.5))
    axes = figure.add_subplot()
    for side, color in zip(SIDES, PALETTE, strict=False):
        runs = [np.array(points).T for points in _points(results, side)]
        for seconds, accuracy in runs:
            axes.plot(seconds / 60, 100 * accuracy, _LINES[side], color=color, lw=0.7, alpha=0.6)
        # The mean is drawn where all trainings have a snapshot before and after.
        first, last = max(run[0][0] for run in runs), min(run[0][-1] for run in runs)
        times = np.linspace(first, last, 200)
        average = np.mean([np.interp(times, *run) for run in runs], axis=0)
        label = f"{_NAMES[side]}: {100 * final_mean(results, side):.1f}"
        axes.plot(times / 60, 100 * average, _LINES[side], color=color, lw=2.2, label=label)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("k-NN accuracy in %")
    axes.set_title(title)
    axes.grid(True)
    axes.legend(loc="lower right")
    return figure
