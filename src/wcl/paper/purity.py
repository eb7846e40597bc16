"""Gains over SimCLR, each with the quality of the weak labels of its run."""

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wcl.paper.result_store import ResultStore, settings_of
from wcl.paper.tables import Cell, Figure, Table
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

# The figure of each measure of accuracy that gains are computed from.
_FIGURES = {"few_labels": "3", "linear": "top1"}
_QUALITIES = ("purity", "pair_precision", "pair_recall")
_LAST = 1 / 4  # of a run's epochs, over which the quality is averaged


class Point(NamedTuple):
    """A row of a table with one seed, compared with SimCLR of the same seed."""

    row: str
    seed: int
    data: str
    figure: str
    """The column of the table that the gain is of."""
    purity: float
    """Share of the images that are of their component's most common class."""
    gain: float
    """Percentage points over SimCLR."""
    pair_precision: float
    """Share of the positive pairs that are of one class."""
    pair_recall: float
    """Share of the pairs of one class that are positive."""
    family: str
    run: str
    baseline: str
    """Names of the two run folders."""


def points_of(table: Table, store: ResultStore, seeds: range) -> list[Point]:
    """Return the points of all rows that are done and compared with SimCLR."""
    points = []
    for cell, baseline, figure in _compared(table, store):
        for seed in seeds:
            ours, theirs = store.figures(cell, seed), store.figures(baseline, seed)
            run = store.run_folder(cell.run, seed)
            quality = weak_label_quality(run)
            if ours is None or theirs is None or quality is None:
                continue
            points.append(
                Point(
                    row=cell.row,
                    seed=seed,
                    data=cell.run.data,
                    figure=figure.column,
                    gain=ours[figure.key] - theirs[figure.key],
                    family=_family(cell, store),
                    run=run.name,
                    baseline=store.run_folder(baseline.run, seed).name,
                    **quality,
                )
            )
    return points


def weak_label_quality(run: Path) -> dict[str, float] | None:
    """Return the quality of a run's weak labels in its last quarter; None if it has none."""
    lines = read_metrics(RunFolder(run).metrics)
    lines = [line for line in lines if line["kind"] == "epoch" and "purity" in line]
    if not lines:
        return None
    last = lines[-math.ceil(len(lines) * _LAST) :]
    return {name: statistics.fmean(line[name] for line in last) for name in _QUALITIES}


def _compared(table: Table, store: ResultStore) -> Iterator[tuple[Cell, Cell, Figure]]:
    """Yield each cell that is compared with SimCLR, the cell of SimCLR, and the figure."""
    cells = {(cell.row, column): cell for cell in table.cells for column in cell.columns}
    for cell in table.cells:
        for figure in cell.figures:
            baseline = cells.get((cell.baseline, figure.column), cell)
            if (
                baseline is not cell
                and figure.key == _FIGURES.get(cell.measure.protocol)
                and settings_of(baseline.run, 0, "", store.config).method == "simclr"
            ):
                yield cell, baseline, figure


def _family(cell: Cell, store: ResultStore) -> str:
    if settings_of(cell.run, 0, "", store.config).crops.count:
        return "WCL with crops"
    changed = any(name.startswith("loss.") for name in cell.run.changes)
    return "WCL, one part changed" if changed else "WCL"
