"""Every system in one harness: the same network, data and augmentation; not in the paper.

`systems` compares them after as many epochs, and again in the time of SimCLR. `sweep` is how
their settings on the digits were chosen: four trials each, with a seed that is not reported.
"""

import dataclasses
from collections.abc import Mapping
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
_ABOUT = {
    "digits": "30 epochs with batch 256; settings chosen by `wcl reproduce sweep --scale digits`.",
    "cpu": "10,000 images of CIFAR-10, 10 epochs with batch 128, the recipes `cifar10-cpu-…`.",
}


@dataclass(frozen=True)
class System:
    """A system, and its settings on the digits; those on CIFAR-10 are in its recipe."""

    method: str
    digits: Mapping[str, Any] = field(default_factory=dict)
    candidate: Mapping[str, Any] = field(default_factory=dict)
    """What `sweep` tries beside three learning rates: another setting at the highest of them."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """What was best of these with 3 labels per class."""


_LRS = (0.001, 0.002, 0.004)  # around that of the recipe `digits`
_FAST = {"optim.lr": 0.004}
_SLOW = {"optim.lr": 0.001}

_EMA = {"loss.momentum": 0.99}  # the authors' 0.999 is for many more steps
_FASTER_EMA = {**_FAST, "loss.momentum": 0.9}
_SOFTER = {**_FAST, "loss.temperature": 0.2}
_NO_BLUR = {"loss.blur": (0, 0), "loss.solarize": (0, 0)}  # as the augmentation of all others
_MIXTURES = {"loss.hardest": 64, "loss.mixtures": 64, "loss.query_mixtures": 16}

_BOTTLENECK = {**_FAST, "loss.bottleneck": 2}
_PROTOTYPES = {**_FAST, "loss.prototypes": 30}

SYSTEMS = {
    "supervised": System("supervised", {}, {**_FAST, "optim.weight_decay": 1e-4}, _FAST),
    "SupCon": System("supcon", {}, _SOFTER, _SOFTER),
    "SimCLR": System("simclr", {}, _SOFTER, _SLOW),
    "InstDisc": System("instdisc", {}, _SOFTER, _SOFTER),
    "MoCo v2": System("moco", _EMA, _FASTER_EMA),
    "MoCHi": System("mochi", {**_EMA, **_MIXTURES}, _FASTER_EMA),
    "SimCLR v2": System("simclrv2", {**_EMA, "model.head_layers": 3}, _FASTER_EMA, _SLOW),
    "BYOL": System("byol", {**_EMA, **_NO_BLUR}, _FASTER_EMA, _FASTER_EMA),
    "SimSiam": System("simsiam", {}, _BOTTLENECK, _BOTTLENECK),
    "SwAV": System("swav", {"loss.prototypes": 60}, _PROTOTYPES, _PROTOTYPES),
    "PCL v2": System("pcl", {**_EMA, "loss.warmup_epochs": 5}, {**_FAST, "loss.clusters": 40}),
    "FNCancel": System("fncancel", {}, {**_FAST, "loss.threshold": 0.8}, _FAST),
    "AdpCLR": System("adpclr", {}, {**_FAST, "loss.k": 2}, _SLOW),
    # Chosen before its projection had batch norm: to be tried again.
    "NNCLR": System("nnclr", {}, _SOFTER, _SOFTER),
    "WCL": System("wcl", {}, _SOFTER, _SOFTER),
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
    return Table("systems", title, tuple(cells), wide=True, notes=(_ABOUT[scale], *_NOTES))


def sweep() -> Table:
    """Return the runs by which the settings of the systems on the digits were chosen."""
    cells = []
    for name, system in SYSTEMS.items():
        run = _run(dataclasses.replace(system, chosen={}), "digits")
        for changes in (*({"optim.lr": lr} for lr in _LRS), system.candidate):
            tried = ", ".join(
                f"{key.partition('.')[2]} {value:g}" for key, value in changes.items()
            )
            changed = dataclasses.replace(run, changes={**run.changes, **changes})
            cells.append(_cell(f"{name}: {tried}", changed, Measure("frozen"), _ACCURACIES))
    title = "Settings of every system, tried with a seed that is not reported"
    notes = _NOTES[:1]
    return Table("sweep", title, tuple(cells), wide=True, first_seed=_SWEEP_SEED, notes=notes)


def _run(system: System, scale: str) -> Run:
    if scale == "cpu":
        recipe = "cifar10-cpu" if system.method == "wcl" else f"cifar10-cpu-{system.method}"
        return Run(recipe, "cifar10", 10, {"limit": 10_000, "batch_size": 128})
    return Run("digits", "digits", 30, {"method": system.method, **system.digits, **system.chosen})


def _cell(
    row: str, run: Run, measure: Measure, columns: Mapping[str, str], unit: str = "%"
) -> Cell:
    figures = tuple(Figure(column, key, unit=unit) for column, key in columns.items())
    return Cell(row, run, measure, figures)
