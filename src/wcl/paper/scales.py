"""The tables at four scales: the same cells, with settings and data that a machine can afford."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wcl.paper.tables import NAMES, Cell, Figure, Measure, Run, Table, table
from wcl.system.errors import InputError


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    about: str
    seeds: int
    """How many there are if the user does not say."""
    tables: tuple[str, ...]
    """Those that it has."""


_OF_THE_PAPER = tuple(name for name in NAMES if name != "mechanisms")
SCALES = {
    "smoke": Scale(
        "made-up pictures or a few digits, tiny networks: proves that every cell can be made, no "
        "more",
        1,
        NAMES,
    ),
    "digits": Scale(
        "1,297 handwritten digits, a network of 0.1 M parameters, 100 epochs; accuracy by the "
        "nearest of a few labeled images",
        5,
        ("mechanisms", "heads", "warmup", "tsne"),
    ),
    "cpu": Scale(
        "20,000 images of CIFAR-10, which stands in for ImageNet too, a network of 1.2 M "
        "parameters, a tenth of the epochs",
        3,
        NAMES,
    ),
    "paper": Scale("the paper's settings", 1, _OF_THE_PAPER),
}
CAVEAT_OF_SMOKE = (
    "Made-up pictures or a few digits, tiny networks and batches: neither figures nor gains mean "
    "anything."
)
CAVEAT = (
    "Data, network and length are not the paper's: compare what rows gain over each other, not "
    "their figures."
)

_FEW_LABELS = {"1 label": "1", "3 labels": "3", "10 labels": "10"}
_DIGITS_CROPS = {"crops.count": 4, "crops.size": 16, "crops.scale": (0.3, 0.6)}
# The pixels of a view of ImageNet for each of one of CIFAR-10: what 160 pixels are there.
_SHRUNK = 224 // 32
_TINY_HEADS = {"model.head_hidden_dim": 32, "model.head_out_dim": 16}
_TINY_LOG = {"log.tensorboard": False, "log.health": 16}
_TINY = {
    **_TINY_HEADS,
    **_TINY_LOG,
    "model.backbone": "conv_tiny",
    "model.stem": "native",
    "image_size": 32,
    "classes": 0,
    "num_workers": 0,
}
_TINY_BATCH = 16
_TINY_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"epochs": 1, "batch_size": 16},
    "finetune": {"epochs": 1},
    "lowshot": {"draws": 2},
    "project": {"per_group": 5},
}


def at_scale(name: str, scale: str) -> Table:
    """A table with its cells as they are at that scale.

    Raises:
        InputError: the table has no such scale.
    """
    if name not in SCALES[scale].tables:
        others = ", ".join(s for s, found in SCALES.items() if name in found.tables)
        raise InputError(f"--scale: {name} has no scale {scale}; it has {others}")
    original = table(name)
    if scale == "paper":
        return original
    cells = [_CELLS[scale](cell) for cell in original.cells if _wanted(cell, scale)]
    notes = original.notes
    if scale == "smoke":
        notes = (CAVEAT_OF_SMOKE,)
    elif name != "mechanisms":
        notes = (*notes, CAVEAT)
    return dataclasses.replace(original, cells=tuple(cells), notes=notes)


def _wanted(cell: Cell, scale: str) -> bool:
    return not (scale == "cpu" and cell.run.data == "cifar100")


def _smoke(cell: Cell) -> Cell:
    if cell.run.recipe == "digits":
        return dataclasses.replace(_digits(cell), run=_smoke_run(cell.run))
    measure = _made_small(cell.measure, _smoke_run)
    options = {**measure.options, **_TINY_OPTIONS.get(measure.protocol, {})}
    measure = dataclasses.replace(measure, options=options)
    return dataclasses.replace(cell, run=_smoke_run(cell.run), measure=measure)


def _smoke_run(run: Run) -> Run:
    changes = {
        **run.changes,
        "batch_size": max(4, run.changes.get("batch_size", 256) // _TINY_BATCH),
    }
    if run.recipe == "digits":
        changes |= {**(_DIGITS_CROPS if run.crops else {}), **_TINY_HEADS, **_TINY_LOG}
        return Run("digits", "digits", 2, {**changes, "limit": 64})
    changes |= {**_TINY, **({"crops.size": 16} if run.crops else {})}
    return dataclasses.replace(run, epochs=2, changes=changes)


def _digits(cell: Cell) -> Cell:
    measure = _made_small(cell.measure, _digits_run)
    figures = cell.figures
    if measure.protocol == "linear":  # on which the digits are no task: 99% in any case
        measure = Measure("few_labels")
        of_paper = figures[0].paper
        figures = tuple(
            Figure(column, key, of_paper, same_measure=False) for column, key in _FEW_LABELS.items()
        )
    run = _digits_run(cell.run)
    return dataclasses.replace(cell, run=run, measure=measure, figures=figures)


def _digits_run(run: Run) -> Run:
    crops = _DIGITS_CROPS if run.crops else {}
    return Run("digits", "digits", run.epochs // 2, {**crops, **run.changes})


def _cpu(cell: Cell) -> Cell:
    measure = _made_small(cell.measure, _cpu_run)
    if measure.protocol == "linear":
        measure = Measure("linear", {"mode": "fast"})
    return dataclasses.replace(cell, run=_cpu_run(cell.run), measure=measure)


def _cpu_run(run: Run) -> Run:
    changes = {**run.changes, "limit": 20_000}
    if "image_size" in changes:
        changes["image_size"] = round(changes["image_size"] / _SHRUNK)
    return Run("cifar10-cpu", "cifar10", run.epochs // 10, changes, run.crops)


def _made_small(measure: Measure, smaller: Callable[[Run], Run]) -> Measure:
    if measure.against is None:
        return measure
    return dataclasses.replace(measure, against=smaller(measure.against))


_CELLS = {"smoke": _smoke, "digits": _digits, "cpu": _cpu}
