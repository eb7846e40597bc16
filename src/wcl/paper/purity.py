"""Gains over SimCLR, each with the quality of the weak labels of its run."""

from collections.abc import Iterator
from typing import NamedTuple

from wcl.paper.pairs import pair_quality
from wcl.paper.result_store import ResultStore, settings_of
from wcl.paper.tables import Cell, Figure, Table

# The figure of each measure of accuracy that gains are computed from.
_FIGURES = {"frozen": "3", "linear": "top1"}


class Point(NamedTuple):
    """A row of a table with one seed, compared with SimCLR of the same seed.

    See `pair_quality` for purity, precision and recall.
    """

    row: str
    seed: int
    data: str
    figure: str
    """The column of the table that the gain is of."""
    purity: float
    gain: float
    """Percentage points over SimCLR."""
    pair_precision: float
    pair_recall: float
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
            if ours is None or theirs is None or "purity" not in (quality := pair_quality(run)):
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
                    purity=quality["purity"],
                    pair_precision=quality["pair_precision"],
                    pair_recall=quality["pair_recall"],
                )
            )
    return points


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
