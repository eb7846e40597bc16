"""Which cells each table has, as the paper made them; `scales` makes them smaller.

The paper's figures are in `figures.yaml`, with the table that each came from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from wcl.system.errors import InputError


@dataclass(frozen=True)
class Run:
    """A pretraining run but for its seed."""

    recipe: str
    """Without the ending `-crops`, which `crops` adds."""
    data: str
    """The name of its data set: digits, cifar10, cifar100 or imagenet."""
    epochs: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings besides those of the recipe, by their dotted names."""
    crops: bool = False


@dataclass(frozen=True)
class Measure:
    """How a run is measured: a protocol of `wcl eval`; `few_labels`, as the demo does it; or
    `time`, the seconds of an epoch."""

    protocol: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    """The name of its data set, if it is not that of the run."""
    against: Run | None = None
    """A run that is drawn beside it."""


@dataclass(frozen=True)
class Figure:
    """One figure of a cell."""

    column: str
    key: str
    """Its name in what the measure finds."""
    paper: float | None = None
    same_measure: bool = True
    """Whether the paper's figure is of the same measure, so that there is a difference to show."""


@dataclass(frozen=True)
class Cell:
    """A run and its measure, which give one or several figures of a row."""

    row: str
    run: Run
    measure: Measure
    figures: tuple[Figure, ...]
    against: str = ""
    """The row that its gain is over."""


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    unit: str = "%"
    relative: bool = False
    """Whether figures are multiples of those of the row that they stand against."""
    notes: tuple[str, ...] = ()


def table(name: str) -> Table:
    """The table of that name at the paper's scale."""
    return _TABLES[name]()


@cache
def paper(source: str) -> dict[str, Any]:
    """A table of the paper as the data file has it: caption, columns, rows, gains, notes."""
    everything = yaml.safe_load((Path(__file__).parent / "figures.yaml").read_text())
    found: dict[str, Any] = everything[source]
    return found


def paper_figure(source: str, row: str, column: str) -> float | None:
    """One figure of the paper; None where it has none."""
    found = paper(source)
    value: float | None = found["rows"][row][found["columns"].index(column)]
    return value


def only(chosen: Table, text: str) -> tuple[Cell, ...]:
    """The cells whose row and columns have that text in their names, and what they stand against.

    Of a text with `+`, every part must be in the row or in a column; names have commas in them.

    Raises:
        InputError: there are none.
    """
    cells, parts = chosen.cells, [part.strip() for part in text.split("+")]
    if text and not all(parts):
        raise InputError(f"--only: {text!r} has an empty part; write as 'batch 256 + 100 epochs'")
    wanted = [
        c for c in cells if all(any(p in name for name in (c.row, *_columns(c))) for p in parts)
    ]
    if not wanted:
        rows = "; ".join(dict.fromkeys(cell.row for cell in cells))
        raise InputError(f"--only: no row or column of {chosen.name} has {text!r}; rows are {rows}")
    beside = {(cell.against, column) for cell in wanted for column in _columns(cell)}
    return tuple(
        c for c in cells if c in wanted or any((c.row, column) in beside for column in _columns(c))
    )


def _columns(cell: Cell) -> Iterator[str]:
    return (figure.column for figure in cell.figures)


_LINEAR = Measure("linear", {"mode": "paper"})
# As SimCLR probes ImageNet, which the paper follows there.
_LINEAR_IMAGENET = Measure("linear", {"mode": "paper", "batch_size": 4096, "epochs": 90})
_METHODS = {"SimCLR": "simclr", "WCL": "wcl"}


def _top1(source: str, row: str, column: str = "top-1") -> tuple[Figure, ...]:
    return (Figure(column, "top1", paper_figure(source, row, column)),)


def _title(*sources: str) -> str:
    return "; ".join(f"{source}: {paper(source)['caption']}" for source in sources)


def _notes(*sources: str) -> tuple[str, ...]:
    return tuple(note for source in sources for note in paper(source).get("notes", ()))


def _cifar() -> Table:
    cells = []
    for batch in (64, 128, 256):
        for method, setting in _METHODS.items():
            row = f"{method}, batch {batch}"
            for data, name in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
                for epochs in (100, 200, 300, 400):
                    run = Run(data, data, epochs, {"method": setting, "batch_size": batch})
                    figures = _top1("Table 1", row, f"{name}, {epochs} epochs")
                    cells.append(Cell(row, run, _LINEAR, figures, f"SimCLR, batch {batch}"))
    return Table("cifar", _title("Table 1"), tuple(cells), notes=_notes("Table 1"))


def _imagenet100(changes: Mapping[str, Any], crops: bool = False) -> Run:
    return Run("imagenet100", "imagenet", 200, changes, crops)


_SIMCLR: Mapping[str, Any] = {"method": "simclr"}
_PLAIN: Mapping[str, Any] = {"crops.neighbors": False}


def _heads() -> Table:
    runs = {
        "g alone (SimCLR)": _imagenet100(_SIMCLR),
        "φ alone": _imagenet100({"loss.nce": 0}),
        "both losses on one head": _imagenet100({"loss.heads": "shared"}),
        "two heads (WCL)": _imagenet100({}),
        "two heads, L_cNCE": _imagenet100({**_PLAIN, "loss.cswap": 0}, crops=True),
        "two heads, L_cswap": _imagenet100({**_PLAIN, "loss.cnce": 0}, crops=True),
        "two heads, both losses of crops": _imagenet100(_PLAIN, crops=True),
    }
    return Table(
        "heads",
        _title("Table 2"),
        tuple(
            Cell(row, run, _LINEAR, _top1("Table 2", row), "g alone (SimCLR)")
            for row, run in runs.items()
        ),
    )


def _warmup() -> Table:
    plain = "two heads, both losses of crops"
    cells = [Cell("plain crops", _imagenet100(_PLAIN, True), _LINEAR, _top1("Table 2", plain))]
    for epochs in (0, 25, 50, 75, 100):
        row = f"warm-up of {epochs} epochs"
        run = _imagenet100({"crops.warmup": epochs / 200}, crops=True)
        cells.append(Cell(row, run, _LINEAR, _top1("Table 3", row), "plain crops"))
    notes = ("Warm-ups are shares of 200 epochs. Plain crops are the last row of Table 2.",)
    return Table("warmup", _title("Table 3"), tuple(cells), notes=notes)


def _imagenet_run(epochs: int, changes: Mapping[str, Any], crops: bool = False) -> Run:
    return Run(f"imagenet-{epochs}ep", "imagenet", epochs, changes, crops)


_AT_100 = {
    "SimCLR, 100 epochs": _imagenet_run(100, _SIMCLR),
    "WCL, 100 epochs": _imagenet_run(100, {}),
    "WCL with crops, 100 epochs": _imagenet_run(100, {"image_size": 160}, crops=True),
}


def _cost() -> Table:
    cells = []
    for row, run in _AT_100.items():
        figures = (Figure("time", "seconds", paper_figure("Table 4", row, "time")),)
        cells.append(Cell(row, run, Measure("time"), figures, "SimCLR, 100 epochs"))
    return Table("cost", _title("Table 4"), tuple(cells), unit="× SimCLR", relative=True)


def _imagenet() -> Table:
    cells = [
        Cell(row, run, _LINEAR_IMAGENET, _top1("Table 4", row), "SimCLR, 100 epochs")
        for row, run in _AT_100.items()
    ]
    for source, epochs in (("Table 5", 200), ("Table 6", 800)):
        simclr = f"SimCLR, {epochs} epochs"
        runs = {
            simclr: _imagenet_run(epochs, _SIMCLR),
            f"WCL, {epochs} epochs": _imagenet_run(epochs, {}),
            f"WCL with crops, {epochs} epochs": _imagenet_run(epochs, {}, crops=True),
        }
        cells += [
            Cell(row, run, _LINEAR_IMAGENET, _top1(source, row), simclr)
            for row, run in runs.items()
        ]
    sources = ("Table 4", "Table 5", "Table 6")
    notes = (
        *_notes(*sources),
        "WCL with crops at 100 epochs has views of 160 pixels, and is measured at that size.",
        "The paper's figures of SimCLR at 200 and 800 epochs are those that SimCLR's authors gave.",
    )
    return Table("imagenet", _title(*sources), tuple(cells), notes=notes)


def _semi() -> Table:
    cells = []
    for start in ("pool", "projection"):
        row = f"WCL, from the {start}"
        for labels in ("1%", "10%"):
            figures = tuple(
                Figure(column, key, paper_figure("Table 8", row, column))
                for column, key in ((f"{labels}, top-1", "top1"), (f"{labels}, top-5", "top5"))
            )
            options = {"labels": labels, "start": start, "scratch": False}
            run = _imagenet_run(800, {}, crops=True)
            cells.append(Cell(row, run, Measure("finetune", options), figures))
    return Table("semi", _title("Table 8"), tuple(cells), notes=_notes("Table 8"))


def _voc() -> Table:
    cells = []
    for epochs in (200, 800):
        row = f"WCL, {epochs} epochs"
        figures = tuple(
            Figure(column, column.removeprefix("k="), paper_figure("Table 7", row, column))
            for column in paper("Table 7")["columns"]
        )
        run = _imagenet_run(epochs, {}, crops=True)
        cells.append(Cell(row, run, Measure("lowshot", data="voc"), figures))
    notes = ("Mean average precision; SVMs of cost 1, the examples drawn five times.",)
    return Table("voc", _title("Table 7"), tuple(cells), notes=notes)


def _tsne() -> Table:
    columns = ("silhouette", "compactness", "distance")
    figures = tuple(Figure(column, column) for column in columns)
    runs = {"SimCLR": _imagenet100(_SIMCLR), "WCL": _imagenet100({})}
    return Table(
        "tsne",
        "Figure 4: t-SNE visualization for SimCLR and our method",
        tuple(
            Cell(row, run, Measure("project", against=beside), figures, "SimCLR")
            for (row, run), beside in zip(runs.items(), (None, runs["SimCLR"]), strict=True)
        ),
        unit="",
        notes=(
            "The paper has the two maps and no figures; the maps are in the folder maps.",
            "Compactness is the mean cosine distance of an image to the mean of its class, "
            "distance that of two classes' means.",
        ),
    )


def _mechanisms() -> Table:
    """What the paper argues for in words: rows of the digits, for which it has no figures."""
    cells: list[Cell] = []

    def add(
        row: str,
        changes: Mapping[str, Any],
        against: str,
        crops: bool = False,
        epochs: int = 200,
    ) -> None:
        run = Run("digits", "digits", epochs, changes, crops)
        cells.append(Cell(row, run, _LINEAR, (Figure("top-1", "top1"),), against))

    add("SimCLR", _SIMCLR, "SimCLR")
    add("WCL", {}, "SimCLR")
    add("without the swap", {"loss.swapped": False}, "SimCLR")
    add("keys detached", {"loss.key_gradient": False}, "SimCLR")
    add("labels from h", {"loss.labels_from": "h"}, "SimCLR")
    add("positives summed", {"loss.positives": "sum"}, "SimCLR")
    add("one shared head", {"loss.heads": "shared"}, "SimCLR")
    add("φ alone", {"loss.nce": 0}, "SimCLR")
    add("SimCLR, plain crops", {**_SIMCLR, **_PLAIN}, "SimCLR, plain crops", crops=True)
    add("WCL, plain crops", _PLAIN, "SimCLR, plain crops", crops=True)
    add("WCL, crops of neighbors", {}, "SimCLR, plain crops", crops=True)
    # A batch of 64 takes four times the steps of one of 256; a quarter of the epochs, as many.
    batches = [(64, 200, ""), (64, 50, ", a quarter of the epochs"), (128, 200, ""), (512, 200, "")]
    for batch, epochs, words in batches:
        simclr = f"SimCLR, batch {batch}{words}"
        add(simclr, {**_SIMCLR, "batch_size": batch}, simclr, epochs=epochs)
        add(f"WCL, batch {batch}{words}", {"batch_size": batch}, simclr, epochs=epochs)
    title = "The mechanisms one by one: what each is for"
    return Table("mechanisms", title, tuple(cells))


_TABLES = {
    "cifar": _cifar,
    "heads": _heads,
    "warmup": _warmup,
    "cost": _cost,
    "imagenet": _imagenet,
    "semi": _semi,
    "voc": _voc,
    "tsne": _tsne,
    "mechanisms": _mechanisms,
}
NAMES = tuple(_TABLES)
MEANINGS = {
    "cifar": "SimCLR and WCL by batch and epochs, on CIFAR-10 and CIFAR-100 (Table 1)",
    "heads": "the two heads and the losses of crops, one by one (Table 2)",
    "warmup": "when crops begin to be cut from neighbors (Table 3)",
    "cost": "the time of WCL and of crops relative to SimCLR (Table 4)",
    "imagenet": "linear evaluation on ImageNet (Tables 4 to 6)",
    "semi": "fine-tuning with 1% and 10% of the labels of ImageNet (Table 8)",
    "voc": "a few labeled images of VOC07 (Table 7)",
    "tsne": "two maps by t-SNE (Figure 4)",
    "mechanisms": "one part of the method changed at a time, of which the paper has no table",
}
