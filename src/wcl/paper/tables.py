"""The parts of a table: pretraining runs, measures, figures and cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wcl.system.errors import InputError


@dataclass(frozen=True)
class Run:
    """A pretraining run, except for its seed."""

    recipe: str
    """Without the suffix `-crops`, which `crops` adds."""
    data: str
    """Name of the data set: digits, cifar10, cifar100 or imagenet."""
    epochs: int
    """0 for the network with its initial weights."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the recipe, by their dotted names."""
    crops: bool = False
    time_of: "Run | None" = None
    """A run whose time this one gets: `epochs` are then those it would have at any cost."""


@dataclass(frozen=True)
class Measure:
    """How a run is measured."""

    protocol: str
    """A protocol of `wcl eval`; `frozen`, accuracies on frozen features; `time`, seconds per epoch;
    `cost`, time and memory of a step relative to `against`; or `pairs`, the positives of a run."""
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    """Name of the data set, if it is not that of the run."""
    against: Run | None = None
    """A run that `project` draws beside this one, and `cost` compares it with."""


@dataclass(frozen=True)
class Figure:
    """One figure of a cell."""

    column: str
    key: str
    """Its name in the result of the measure."""
    paper: float | None = None
    comparable: bool = True
    """Whether the paper's figure is of the same measure, so that a difference means something."""
    unit: str = "%"


@dataclass(frozen=True)
class Cell:
    """A run and its measure, which give one or more figures of a row."""

    row: str
    run: Run
    measure: Measure
    figures: tuple[Figure, ...]
    baseline: str = ""
    """The row that gains are computed over."""

    @property
    def columns(self) -> list[str]:
        return [figure.column for figure in self.figures]


@dataclass(frozen=True)
class PublishedFigure:
    """A figure of the paper in a row that is printed but not made."""

    row: str
    column: str
    paper: float


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    rows: tuple[str, ...] = ()
    """All rows in the order they are shown in, with those of `published`; may be left out if
    nothing is."""
    published: tuple[PublishedFigure, ...] = ()
    about: str = ""
    """Networks, data and length of the runs, if they are not those of the scale."""
    unit: str = "%"
    relative: bool = False
    """Whether figures are multiples of those of the baseline row."""
    wide: bool = False
    """Whether the figures of a row are printed beside each other."""
    first_seed: int = 0
    """Settings are chosen with other seeds than those that are reported."""
    seeds: int = 0
    """Default number of seeds; 0 for that of the scale."""
    notes: tuple[str, ...] = ()


def matches(text: str, row: str, columns: Sequence[str]) -> bool:
    """Return whether each part of a text, joined by `+`, is in a row or in one of its columns."""
    parts = [part.strip() for part in text.split("+")]
    return all(any(part in name for name in (row, *columns)) for part in parts)


def only(table: Table, text: str) -> tuple[Cell, ...]:
    """Return the cells whose row or columns contain a text, and their baselines.

    If the text has parts joined by `+`, each must be in the row or in a column. (Not by commas:
    names contain them.)

    Raises:
        InputError: no cell matches.
    """
    chosen = [cell for cell in table.cells if matches(text, cell.row, cell.columns)]
    if not chosen:
        rows = "; ".join(dict.fromkeys(cell.row for cell in table.cells))
        raise InputError(
            f"--only: no row or column of {table.name} contains {text!r}; its rows are {rows}"
        )
    baselines = {(cell.baseline, column) for cell in chosen for column in cell.columns}
    return tuple(
        cell
        for cell in table.cells
        if cell in chosen or any((cell.row, column) in baselines for column in cell.columns)
    )
