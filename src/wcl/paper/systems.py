"""Every system in one harness: the same network, data and augmentation; not in the paper.

`systems` compares them after as many epochs, and again in the time of SimCLR. `sweep` is how their
settings were chosen: the same number of candidates for each, with a seed that is not reported.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wcl.paper.tables import Cell, Figure, Measure, Run, Table

_ACCURACIES = {
    "k-NN": "knn",
    "linear": "linear",
    "1 label": "1",
    "3 labels": "3",
    "10 labels": "10",
}
_PAIRS = {"precision": "pair_precision", "recall": "pair_recall", "conflicting": "conflicting"}
_COSTS = {"time": "time", "memory": "memory"}
_REFERENCE = "SimCLR"
_EQUAL_TIME = "equal time"
_SWEEP_SEED = 100

_NOTES = (
    "Accuracies in %: weighted k-NN and a linear layer with all labels, and the nearest labeled "
    "image with 1, 3 and 10 labels per class.",
    "Precision and recall in %: share of the positive pairs that are of one class, and share of "
    "the pairs of one class in a batch that are positive. Conflicting, in %: share of the pairs "
    "where i takes j for a positive but j does not take i.",
    "Time and memory are multiples of those of SimCLR.",
    f"Rows with `{_EQUAL_TIME}` have as many epochs as fit into the time of SimCLR.",
)


@dataclass(frozen=True)
class System:
    """A system, and its settings on the digits; those on CIFAR-10 are in its recipe."""

    method: str
    digits: Mapping[str, Any] = field(default_factory=dict)
    candidates: Sequence[Mapping[str, Any]] = ()
    """Settings that `sweep` tries beside learning rates."""


@dataclass(frozen=True)
class _Scale:
    lr: float
    """Learning rate of the recipe."""
    sweep_epochs: int


_SCALES = {"digits": _Scale(0.002, 30), "cpu": _Scale(0.5, 3)}
_LR_FACTORS = (0.5, 1, 2)


_EMA = {"loss.momentum": 0.99}  # the authors' 0.999 is for many more steps
_FASTER_EMA = ({"loss.momentum": 0.9},)
_SOFTER = ({"loss.temperature": 0.2},)
_NO_BLUR = {"loss.blur": (0, 0), "loss.solarize": (0, 0)}  # as the augmentation of all others
_MIXTURES = {"loss.hardest": 64, "loss.mixtures": 64, "loss.query_mixtures": 16}

SYSTEMS = {
    "supervised": System("supervised", {}, ({"optim.weight_decay": 1e-4},)),
    "SupCon": System("supcon", {}, _SOFTER),
    "SimCLR": System("simclr", {}, _SOFTER),
    "InstDisc": System("instdisc", {}, _SOFTER),
    "MoCo v2": System("moco", _EMA, _FASTER_EMA),
    "MoCHi": System("mochi", {**_EMA, **_MIXTURES}, _FASTER_EMA),
    "SimCLR v2": System("simclrv2", {**_EMA, "model.head_layers": 3}, _FASTER_EMA),
    "BYOL": System("byol", {**_EMA, **_NO_BLUR}, _FASTER_EMA),
    "SimSiam": System("simsiam", {}, ({"loss.bottleneck": 2},)),
    "SwAV": System("swav", {"loss.prototypes": 60}, ({"loss.prototypes": 30},)),
    "FNCancel": System("fncancel", {}, ({"loss.threshold": 0.8},)),
    "AdpCLR": System("adpclr", {}, ({"loss.k": 2},)),
    "NNCLR": System("nnclr", {}, _SOFTER),
    "WCL": System("wcl", {}, _SOFTER),
}
"""Systems that learn from labels, from instances, from clusters, and from similar images."""


def systems(scale: str) -> Table:
    """Return the comparison of all systems on the digits or, at the scale cpu, on CIFAR-10."""
    runs = {name: _run(system, scale) for name, system in SYSTEMS.items()}
    reference = runs[_REFERENCE]
    cells = []
    for name, run in runs.items():
        cost = Measure("cost", against=reference)
        cells.append(_cell(name, run, Measure("frozen"), _ACCURACIES))
        cells.append(_cell(name, run, Measure("pairs"), _PAIRS))
        cells.append(_cell(name, run, cost, _COSTS, unit="×"))
    for name, run in runs.items():
        if name != _REFERENCE:
            run = dataclasses.replace(run, time_of=reference)
            cells.append(_cell(f"{name}, {_EQUAL_TIME}", run, Measure("frozen"), _ACCURACIES))
    title = "Every system with the same network, data and augmentation"
    return Table("systems", title, tuple(cells), wide=True, notes=_NOTES)


def sweep(scale: str) -> Table:
    """Return the runs by which the settings of the systems were chosen."""
    cells = []
    for name, system in SYSTEMS.items():
        run = _run(system, scale)
        lrs = [{"optim.lr": _SCALES[scale].lr * factor} for factor in _LR_FACTORS]
        for changes in (*lrs, *system.candidates):
            texts = (f"{key} {value:g}" for key, value in changes.items())
            changed = {**run.changes, **changes}
            run = dataclasses.replace(run, epochs=_SCALES[scale].sweep_epochs, changes=changed)
            cells.append(_cell(f"{name}, {', '.join(texts)}", run, Measure("frozen"), _ACCURACIES))
    title = "Settings of every system, tried with a seed that is not reported"
    notes = _NOTES[:1]
    return Table("sweep", title, tuple(cells), wide=True, first_seed=_SWEEP_SEED, notes=notes)


def _run(system: System, scale: str) -> Run:
    if scale == "cpu":
        recipe = "cifar10-cpu" if system.method == "wcl" else f"cifar10-cpu-{system.method}"
        return Run(recipe, "cifar10", 10, {"limit": 10_000, "batch_size": 128})
    return Run("digits", "digits", 30, {"method": system.method, **system.digits})


def _cell(
    row: str, run: Run, measure: Measure, columns: Mapping[str, str], unit: str = "%"
) -> Cell:
    figures = tuple(Figure(column, key, unit=unit) for column, key in columns.items())
    return Cell(row, run, measure, figures)
