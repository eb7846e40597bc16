"""Every system in one harness: the same network, data and augmentation; not in the paper.

`systems` compares them after as many epochs, and again in the time of SimCLR. `sweep` is how
their settings were chosen: as many trials for each, with a seed that is not reported.
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
    f"Rows with `{_EQUAL_TIME}` have as many whole epochs as come closest to the time of SimCLR.",
)
_ABOUT = {
    "digits": "1,297 handwritten digits, a network of 0.1 M parameters, 30 epochs with batch 256; "
    "settings chosen by `wcl reproduce sweep --scale digits`",
    "cpu": "10,000 images of CIFAR-10 and their labels, a network of 1.2 M parameters, 10 epochs "
    "with batch 128; recipes `cifar10-cpu-…` with learning rates chosen by "
    "`wcl reproduce sweep --scale cpu`",
}
_ABOUT_SWEEP = {
    "digits": "1,297 handwritten digits, a network of 0.1 M parameters, 30 epochs with batch 256",
    "cpu": "5,000 images of CIFAR-10, a network of 1.2 M parameters, 5 epochs with batch 128",
}
_CIFAR_IMAGES, _CIFAR_EPOCHS = 10_000, 10
_SWEEP_IMAGES, _SWEEP_EPOCHS = 5_000, 5  # of CIFAR-10
_FROZEN = {
    "digits": Measure("frozen"),
    # A fifth of the labels: evaluation then takes a tenth of the time of a run, not a third.
    "cpu": Measure("frozen", {"limit": _CIFAR_IMAGES}),
}


@dataclass(frozen=True)
class System:
    """A system and its settings, which on CIFAR-10 are those of its recipe but for the rate."""

    method: str
    digits: Mapping[str, Any] = field(default_factory=dict)
    candidate: Mapping[str, Any] = field(default_factory=dict)
    """What `sweep` tries on the digits beside three learning rates: a setting at the highest."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """What was best of these with 3 labels per class."""
    cifar_lr: float = 0.5
    """The learning rate on CIFAR-10 with the best mean of k-NN and linear accuracy."""


_LRS = {"digits": (0.001, 0.002, 0.004), "cpu": (0.2, 0.5)}  # that of the recipe among them
_FAST = {"optim.lr": 0.004}
_SLOW = {"optim.lr": 0.001}

_EMA = {"loss.momentum": 0.99}  # the authors' 0.999 is for many more steps
_FASTER_EMA = {**_FAST, "loss.momentum": 0.9}
_SOFTER = {**_FAST, "loss.temperature": 0.2}
_NO_BLUR = {"loss.blur": (0, 0), "loss.solarize": (0, 0)}  # as the augmentation of all others
_MIXTURES = {"loss.hardest": 64, "loss.mixtures": 64, "loss.query_mixtures": 16}
_MIXTURES |= {"loss.warmup_epochs": 10}

_BOTTLENECK = {**_FAST, "loss.bottleneck": 2}
_PROTOTYPES = {**_FAST, "loss.prototypes": 30}

SYSTEMS = {
    "supervised": System(
        "supervised", {}, {**_FAST, "optim.weight_decay": 1e-4}, _FAST, cifar_lr=0.2
    ),
    "SupCon": System("supcon", {}, _SOFTER, _SOFTER, cifar_lr=0.2),
    "SimCLR": System("simclr", {}, _SOFTER, _SLOW, cifar_lr=0.2),
    "InstDisc": System("instdisc", {}, _SOFTER, _SOFTER, cifar_lr=0.2),
    "MoCo v2": System("moco", _EMA, _FASTER_EMA, cifar_lr=0.2),
    "MoCHi": System("mochi", {**_EMA, **_MIXTURES}, _FASTER_EMA, cifar_lr=0.2),
    "SimCLR v2": System("simclrv2", {**_EMA, "model.head_layers": 3}, _FASTER_EMA, _SLOW),
    "BYOL": System("byol", {**_EMA, **_NO_BLUR}, _FASTER_EMA, _FASTER_EMA),
    "SimSiam": System("simsiam", {}, _BOTTLENECK, _BOTTLENECK),
    "SwAV": System("swav", {"loss.prototypes": 60}, _PROTOTYPES, _PROTOTYPES),
    "PCL v2": System(
        "pcl", {**_EMA, "loss.warmup_epochs": 5}, {**_FAST, "loss.clusters": 40}, cifar_lr=0.2
    ),
    "FNCancel": System("fncancel", {}, {**_FAST, "loss.threshold": 0.8}, _FAST, cifar_lr=0.2),
    "AdpCLR": System("adpclr", {}, {**_FAST, "loss.k": 2}, _SLOW),
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
        cells.append(_cell(name, run, _FROZEN[scale], _ACCURACIES))
        cells.append(_cell(name, run, Measure("pairs"), _PAIRS))
        cells.append(_cell(name, run, cost, _COSTS, unit="×"))
    for name, run in runs.items():
        if name != _REFERENCE:
            run = dataclasses.replace(run, time_of=reference)
            cells.append(_cell(f"{name}, {_EQUAL_TIME}", run, _FROZEN[scale], _ACCURACIES))
    title = "Every system with the same network, data and augmentation"
    return Table("systems", title, tuple(cells), about=_ABOUT[scale], wide=True, notes=_NOTES)


def sweep(scale: str) -> Table:
    """Return the runs by which the settings of the systems were chosen."""
    cells = []
    for name, system in SYSTEMS.items():
        run = _run(dataclasses.replace(system, chosen={}), scale)
        trials: list[Mapping[str, Any]] = [{"optim.lr": lr} for lr in _LRS[scale]]
        if scale == "digits":
            trials.append(system.candidate)
        else:
            run = dataclasses.replace(
                run, epochs=_SWEEP_EPOCHS, changes={**run.changes, "limit": _SWEEP_IMAGES}
            )
        for changes in trials:
            tried = ", ".join(
                f"{key.partition('.')[2]} {value:g}" for key, value in changes.items()
            )
            changed = dataclasses.replace(run, changes={**run.changes, **changes})
            cells.append(_cell(f"{name}: {tried}", changed, _FROZEN[scale], _ACCURACIES))
    title = "Settings of every system, tried with a seed that is not reported"
    return Table(
        "sweep",
        title,
        tuple(cells),
        about=_ABOUT_SWEEP[scale],
        wide=True,
        first_seed=_SWEEP_SEED,
        seeds=1,
        notes=_NOTES[:1],
    )


def _run(system: System, scale: str) -> Run:
    if scale == "cpu":
        recipe = "cifar10-cpu" if system.method == "wcl" else f"cifar10-cpu-{system.method}"
        changes = {"limit": _CIFAR_IMAGES, "batch_size": 128, "optim.lr": system.cifar_lr}
        return Run(recipe, "cifar10", _CIFAR_EPOCHS, changes)
    return Run("digits", "digits", 30, {"method": system.method, **system.digits, **system.chosen})


def _cell(
    row: str, run: Run, measure: Measure, columns: Mapping[str, str], unit: str = "%"
) -> Cell:
    figures = tuple(Figure(column, key, unit=unit) for column, key in columns.items())
    return Cell(row, run, measure, figures)
