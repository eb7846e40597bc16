"""What rows gain over SimCLR against what their weak labels were worth: all runs of a folder.

A point is a row with a seed, of any table that was made in the folder, over the SimCLR that it
stands against there. Tables that compare the same two runs give one point for them.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import yaml

from wcl.config import ReproduceConfig
from wcl.paper.catalog import NAMES
from wcl.paper.cells import ResultStore, settings_of
from wcl.paper.scales import SCALES, at_scale
from wcl.paper.tables import Cell, Figure, Table
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import is_number, read_metrics

# Of each way to measure accuracy, the figure that is drawn.
_FIGURES = {"few_labels": "3", "linear": "top1"}
_PRECISIONS = get_args(get_type_hints(ReproduceConfig)["precision"])
_LABELS = ("purity", "pair_precision", "pair_recall")
_LAST = 4  # the last of so many equal parts of a run says what its weak labels were like


class Point(NamedTuple):
    """A row of a table with one seed."""

    row: str
    seed: int
    data: str
    figure: str
    """The column of the table that the gain is of."""
    purity: float
    """Share of the images that are of their component's commonest class."""
    gain: float
    """Percentage points over SimCLR with the same seed."""
    pair_precision: float
    """Share of the positive pairs that are of one class."""
    pair_recall: float
    """Share of the pairs of one class that are positive."""
    family: str


class _Circumstances(NamedTuple):
    """What a run was made with that a table does not say."""

    seed: int
    data: str
    precision: str
    micro_batch_size: int


def gains(result_store: ResultStore) -> list[Point]:
    """The points of a folder; made-up pictures count only as long as there is nothing else."""
    tables = [
        (name, scale)
        for name in NAMES
        for scale, about in SCALES.items()
        if name in about.tables and (result_store.folder / f"{name}-{scale}.json").exists()
    ]
    real = [(name, scale) for name, scale in tables if scale != "smoke"]
    return _gains(result_store, real) or _gains(result_store, tables)


def _gains(result_store: ResultStore, tables: Iterable[tuple[str, str]]) -> list[Point]:
    found: dict[tuple[Path, Path], Point] = {}
    everything = _circumstances(result_store.folder)
    for name, scale in tables:
        for cell, base, figure in _compared(at_scale(name, scale), result_store):
            made_up = scale == "smoke" and cell.run.data != "digits"
            for made in everything:
                shop = _workshop_of(made, cell.run.data, result_store)
                ours, theirs = shop.found(cell, made.seed), shop.found(base, made.seed)
                labels = worth_of_weak_labels(shop.run_folder(cell.run, made.seed))
                if ours is None or theirs is None or labels is None:
                    continue
                if figure.key not in ours.keys() & theirs.keys():
                    continue
                both = shop.result_file(cell, made.seed), shop.result_file(base, made.seed)
                point = Point(
                    row=cell.row,
                    seed=made.seed,
                    data="made-up" if made_up else cell.run.data,
                    figure=figure.column,
                    gain=ours[figure.key] - theirs[figure.key],
                    family=_family(cell, shop),
                    **labels,
                )
                found.setdefault(both, point)
    return list(found.values())


def _compared(table: Table, result_store: ResultStore) -> Iterator[tuple[Cell, Cell, Figure]]:
    """The cells whose accuracy stands against that of SimCLR, the cell of that, and the figure."""
    cells = {(cell.row, figure.column): cell for cell in table.cells for figure in cell.figures}
    for (_, column), cell in cells.items():
        base = cells.get((cell.baseline, column))
        figure = next(figure for figure in cell.figures if figure.column == column)
        if base is None or base is cell or figure.key != _FIGURES.get(cell.measure.protocol):
            continue
        if settings_of(base.run, 0, "", result_store.config).method == "simclr":
            yield cell, base, figure


def _family(cell: Cell, shop: ResultStore) -> str:
    if settings_of(cell.run, 0, "", shop.config).crops.count:
        return "WCL with crops"
    changed = any(name.startswith("loss.") for name in cell.run.changes)
    return "WCL, one part changed" if changed else "WCL"


def worth_of_weak_labels(run: Path) -> dict[str, float] | None:
    """What the weak labels of a run were worth in its end; None if it had none."""
    lines = [
        line
        for line in read_metrics(RunFolder(run).metrics)
        if line.get("kind") == "epoch" and all(is_number(line.get(name)) for name in _LABELS)
    ]
    if not lines:
        return None
    last = lines[-math.ceil(len(lines) / _LAST) :]
    return {name: statistics.fmean(line[name] for line in last) for name in _LABELS}


def _circumstances(folder: Path) -> list[_Circumstances]:
    found = set()
    for file in (RunFolder(run).config for run in folder.glob("runs/*")):
        # It may be of a run that is to be made again.
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError, yaml.YAMLError):
            found.add(_circumstances_of(file))
    return sorted(found)


@cache  # a run's settings stay as they are, and after every cell those of all runs are asked for
def _circumstances_of(config: Path) -> _Circumstances:
    values = yaml.safe_load(config.read_text())
    made = [values[name] for name in _Circumstances._fields]
    types = [type(value) for value in made]
    if types != [int, str, str, int] or values["precision"] not in _PRECISIONS:
        raise TypeError(f"{config}: settings that no run has")
    return _Circumstances(*made)


def _workshop_of(made: _Circumstances, data: str, result_store: ResultStore) -> ResultStore:
    """The folder as the command saw it that made such runs."""
    same = {name: getattr(made, name) for name in ("precision", "micro_batch_size")}
    config = dataclasses.replace(result_store.config, **same)
    return ResultStore(result_store.folder, config, {data: made.data})
