"""The tables at four scales: the same cells with smaller networks, data and epochs."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wcl.paper.catalog import NAMES, NOT_IN_PAPER, table
from wcl.paper.systems import sweep, systems
from wcl.paper.tables import Cell, Figure, Measure, Run, Table
from wcl.system.errors import InputError


@dataclass(frozen=True)
class Scale:
    """A size of networks, data and runs."""

    about: str
    seeds: int
    """Default number of seeds."""
    tables: tuple[str, ...]
    """Tables that exist at this scale."""


SCALES = {
    "smoke": Scale(
        "synthetic images or a few digits, tiny networks; only checks that every cell can be made",
        1,
        tuple(name for name in NAMES if name != "sweep"),
    ),
    "digits": Scale(
        "1,297 handwritten digits, a network of 0.1 M parameters, 100 epochs; accuracy by the "
        "nearest of a few labeled images",
        5,
        (*NOT_IN_PAPER, "heads", "warmup", "tsne"),
    ),
    "cpu": Scale(
        "20,000 images of CIFAR-10, also in place of ImageNet, a network of 1.2 M parameters, a "
        "tenth of the epochs",
        3,
        NAMES,
    ),
    "paper": Scale(
        "the paper's settings", 1, tuple(name for name in NAMES if name not in NOT_IN_PAPER)
    ),
}
_SMOKE_CAVEAT = (
    "Synthetic images or a few digits, tiny networks and batches: neither figures nor gains mean "
    "anything."
)
_CAVEATS = {
    "digits": "Compare gains between rows, not figures with the paper's. Different from the paper "
    "are the images (1,297 digits of 32 pixels), the network (0.1 M parameters), the heads (128 "
    "units and 64 outputs instead of 2048 and 128), the length (half the epochs), the batch size "
    "(256 instead of 2048), the optimizer (AdamW instead of LARS) with its learning rate, the "
    "augmentation (rotation, shear, zoom, shift and noise instead of crops, flips and colors; the "
    "same in all epochs), the small crops (16 pixels, scale 0.3–0.6) and the measure (the nearest "
    "of a few labeled images instead of a linear probe).",
    "cpu": "Compare gains between rows, not figures with the paper's. Different from the paper "
    "are the images (20,000 of CIFAR-10), the network (1.2 M parameters, first convolution of "
    "stride 2), the heads (2 layers of 512 units instead of 2 or, on ImageNet-1k, 3 of 2048), the "
    "length (a tenth of the epochs), the optimizer (SGD instead of LARS) with its learning rate, "
    "the weight decay (1e-4 instead of 1e-6), the warm-up (2 epochs instead of 10) and the linear "
    "probe (features of four epochs of crops, reused). In place of ImageNet also the view size "
    "(32 pixels instead of 224), the scale of the large views (0.2–1 instead of 0.08–1 or, with "
    "crops, 0.14–1), the colors (half as strong, without blur, the same in all epochs), the small "
    "crops (4 of 16 pixels, scale 0.1–0.4), the batch size (256 instead of 2048 or 4096) and the "
    "probe's momentum (not Nesterov's), batch size (256) and length (80 epochs).",
}

_FEW_LABELS = {"1 label": "1", "3 labels": "3", "10 labels": "10"}
_DIGITS_CROPS = {"crops.count": 4, "crops.size": 16, "crops.scale": (0.3, 0.6)}
_SMALL = 32  # pixels of CIFAR-10
_SHRINK = 224 // _SMALL
_CPU_VIEWS: Mapping[str, Any] = {"image_size": _SMALL, "scale": (0.2, 1.0)}  # of the recipe
_TINY_HEADS = {"model.head_hidden_dim": 32, "model.head_out_dim": 16}
_TINY_LOG = {"log.tensorboard": False, "log.health": 16}
_TINY = {
    **_TINY_HEADS,
    **_TINY_LOG,
    "model.backbone": "conv_tiny",
    "model.stem": "native",
    "image_size": _SMALL,
    "classes": 0,
    "num_workers": 0,
}
_TINY_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"epochs": 1, "batch_size": 16},
    "finetune": {"epochs": 1},
    "lowshot": {"draws": 2},
    "project": {"per_group": 5},
}


def at_scale(name: str, scale: str) -> Table:
    """Return a table at a scale.

    Raises:
        InputError: the table has no such scale.
    """
    if name not in SCALES[scale].tables:
        others = ", ".join(other for other, found in SCALES.items() if name in found.tables)
        raise InputError(f"--scale: {name} has no scale {scale}; it has {others}")
    if name in _OF_SYSTEMS and scale in ("digits", "cpu"):
        return _OF_SYSTEMS[name](scale)
    original = table(name)
    if scale == "paper":
        return original
    cells = [
        _CELLS[scale](cell)
        for cell in original.cells
        if not (scale == "cpu" and cell.run.data == "cifar100")
    ]
    notes = original.notes
    if scale == "smoke":
        notes = (_SMOKE_CAVEAT,)
    elif name != "mechanisms":
        notes = (*notes, _CAVEATS[scale])
    return dataclasses.replace(original, cells=tuple(cells), notes=notes)


def _shrunk(cell: Cell, shrink: Callable[[Run], Run]) -> Cell:
    against = cell.measure.against
    measure = dataclasses.replace(cell.measure, against=against and shrink(against))
    return dataclasses.replace(cell, run=shrink(cell.run), measure=measure)


def _smoke(cell: Cell) -> Cell:
    if cell.run.recipe == "digits" and cell.measure.protocol == "linear":
        return dataclasses.replace(_digits(cell), run=_smoke_run(cell.run))
    cell = _shrunk(cell, _smoke_run)
    options = {**cell.measure.options, **_TINY_OPTIONS.get(cell.measure.protocol, {})}
    if "image_size" in options:
        options["image_size"] = _SMALL
    return dataclasses.replace(cell, measure=dataclasses.replace(cell.measure, options=options))


def _smoke_run(run: Run) -> Run:
    batch_size = max(4, run.changes.get("batch_size", 256) // 16)
    changes = {**run.changes, "batch_size": batch_size}
    if "loss.warmup_epochs" in changes:
        changes["loss.warmup_epochs"] = 0
    if run.recipe == "digits":
        changes |= {**(_DIGITS_CROPS if run.crops else {}), **_TINY_HEADS, **_TINY_LOG}
        changes |= {"limit": 64}
        time_of = run.time_of and _smoke_run(run.time_of)
        return Run("digits", "digits", 2, changes, time_of=time_of)
    changes |= {**_TINY, **({"crops.size": 16} if run.crops else {})}
    return dataclasses.replace(run, epochs=min(run.epochs, 2), changes=changes)


def _digits(cell: Cell) -> Cell:
    cell = _shrunk(cell, _digits_run)
    if cell.measure.protocol != "linear":
        return cell
    # A linear probe is too easy on the digits: 99% for every row.
    figures = tuple(
        Figure(column, key, cell.figures[0].paper, comparable=False)
        for column, key in _FEW_LABELS.items()
    )
    return dataclasses.replace(cell, measure=Measure("frozen"), figures=figures)


def _digits_run(run: Run) -> Run:
    crops = _DIGITS_CROPS if run.crops else {}
    return Run("digits", "digits", run.epochs // 2, {**crops, **run.changes})


def _cpu(cell: Cell) -> Cell:
    cell = _shrunk(cell, _cpu_run)
    options = dict(cell.measure.options)
    if cell.measure.protocol == "linear":
        options = {name: options[name] for name in ("image_size", "scale") if name in options}
        options["mode"] = "fast"
    # The same views for all runs, as at the scale of the paper.
    options |= {name: value for name, value in _CPU_VIEWS.items() if name in options}
    return dataclasses.replace(cell, measure=dataclasses.replace(cell.measure, options=options))


def _cpu_run(run: Run) -> Run:
    changes = {**run.changes, "limit": 20_000}
    if "image_size" in changes:
        changes["image_size"] = round(changes["image_size"] / _SHRINK)
    return Run("cifar10-cpu", "cifar10", run.epochs // 10, changes, run.crops)


_OF_SYSTEMS = {"systems": systems, "sweep": sweep}
_CELLS = {"smoke": _smoke, "digits": _digits, "cpu": _cpu}
