"""The tables of the paper with its settings; `scales` makes them smaller."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from wcl.paper.other_rows import other_figures, row_order
from wcl.paper.published import published, published_figure
from wcl.paper.systems import sweep, systems
from wcl.paper.tables import Cell, Figure, Measure, Run, Table

_LINEAR = Measure("linear", {"mode": "paper"})
# Runs on ImageNet are evaluated with the same views, whatever they were pretrained with.
_VIEWS: Mapping[str, Any] = {"image_size": 224, "scale": (0.08, 1.0)}
_LINEAR_IMAGENET100 = Measure("linear", {"mode": "paper", "nesterov": True, **_VIEWS})
# For ImageNet-1k the paper follows SimCLR's linear evaluation.
_LINEAR_IMAGENET = Measure(
    "linear", {**_LINEAR_IMAGENET100.options, "batch_size": 4096, "epochs": 90}
)
_COSTS = "0.01,0.1,0.5,10,100"  # beside 1, that of the result; 0.5 is that of PCL
_BEST = "best on test"
_SIMCLR: Mapping[str, Any] = {"method": "simclr"}
_PLAIN: Mapping[str, Any] = {"crops.neighbors": False}


def table(name: str) -> Table:
    """Return a table at the paper's scale."""
    build, _ = _TABLES[name]
    return build()


def _top1(source: str, row: str, column: str = "top-1") -> tuple[Figure, ...]:
    return (Figure(column, "top1", published_figure(source, row, column)),)


def _table(name: str, cells: Iterable[Cell], *sources: str, **values: Any) -> Table:
    """Return a table with the captions, notes and other rows of its sources in the paper."""
    cells = tuple(cells)
    title = "; ".join(f"{source}: {published(source)['caption']}" for source in sources)
    notes = tuple(note for source in sources for note in published(source).get("notes", ()))
    rows, others = row_order(sources, cells), other_figures(sources, cells)
    return Table(name, title, cells, rows, others, notes=notes, **values)


def _imagenet100(changes: Mapping[str, Any], crops: bool = False) -> Run:
    return Run("imagenet100", "imagenet", 200, changes, crops)


def _imagenet_run(
    epochs: int, changes: Mapping[str, Any], crops: bool = False, trained: bool = True
) -> Run:
    return Run(f"imagenet-{epochs}ep", "imagenet", epochs if trained else 0, changes, crops)


def _cifar() -> Table:
    cells = []
    for batch in (64, 128, 256):
        for method in ("SimCLR", "WCL"):
            row = f"{method}, batch {batch}"
            changes = {"method": method.lower(), "batch_size": batch}
            for data, name in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
                for epochs in (100, 200, 300, 400):
                    run = Run(data, data, epochs, changes)
                    figures = _top1("Table 1", row, f"{name}, {epochs} epochs")
                    cells.append(Cell(row, run, _LINEAR, figures, f"SimCLR, batch {batch}"))
    return _table("cifar", cells, "Table 1", wide=True)


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
    cells = [
        Cell(row, run, _LINEAR_IMAGENET100, _top1("Table 2", row), "g alone (SimCLR)")
        for row, run in runs.items()
    ]
    return _table("heads", cells, "Table 2")


def _warmup() -> Table:
    figures = _top1("Table 2", "two heads, both losses of crops")
    plain = _imagenet100(_PLAIN, crops=True)
    cells = [Cell("plain crops", plain, _LINEAR_IMAGENET100, figures)]
    for epochs in (0, 25, 50, 75, 100):
        row = f"warm-up of {epochs} epochs"
        run = _imagenet100({"crops.warmup": epochs / 200}, crops=True)
        figures = _top1("Table 3", row)
        cells.append(Cell(row, run, _LINEAR_IMAGENET100, figures, "plain crops"))
    return _table("warmup", cells, "Table 3")


_AT_100 = {
    "SimCLR, 100 epochs": _imagenet_run(100, _SIMCLR),
    "WCL, 100 epochs": _imagenet_run(100, {}),
    "WCL with crops, 100 epochs": _imagenet_run(100, {"image_size": 160}, crops=True),
}


def _cost() -> Table:
    cells = []
    for row, run in _AT_100.items():
        figures = (Figure("time", "seconds", published_figure("Table 4", row, "time")),)
        cells.append(Cell(row, run, Measure("time"), figures, "SimCLR, 100 epochs"))
    return _table("cost", cells, "Table 4", unit="× SimCLR", relative=True)


def _imagenet() -> Table:
    groups = {"Table 4": _AT_100}
    for source, epochs in (("Table 5", 200), ("Table 6", 800)):
        groups[source] = {
            f"SimCLR, {epochs} epochs": _imagenet_run(epochs, _SIMCLR),
            f"WCL, {epochs} epochs": _imagenet_run(epochs, {}),
            f"WCL with crops, {epochs} epochs": _imagenet_run(epochs, {}, crops=True),
        }
    cells = [
        Cell(row, run, _LINEAR_IMAGENET, _top1(source, row), f"SimCLR, {run.epochs} epochs")
        for source, runs in groups.items()
        for row, run in runs.items()
    ]
    return _table("imagenet", cells, *groups)


def _semi() -> Table:
    simclr, wcl = _imagenet_run(800, _SIMCLR), _imagenet_run(800, {}, crops=True)
    # Without pretraining, all layers have the learning rate of a network from scratch.
    scratch = {"start": "pool", "encoder_lr": 0.3, "lr": 0.3}
    rows: dict[str, tuple[Run, Mapping[str, Any], str]] = {
        "Supervised": (_imagenet_run(800, _SIMCLR, trained=False), scratch, ""),
    }
    for start, baseline in (("pool", "SimCLR v1"), ("projection", "SimCLR v2 (R50)")):
        baseline = f"{baseline}, from the {start}"
        rows[baseline] = (simclr, {"start": start}, baseline)
        rows[f"WCL, from the {start}"] = (wcl, {"start": start}, baseline)
    cells = []
    for row, (run, changes, baseline) in rows.items():
        for labels in ("1%", "10%"):
            figures = tuple(
                Figure(column, key, published_figure("Table 8", row, column))
                for column, key in ((f"{labels}, top-1", "top1"), (f"{labels}, top-5", "top5"))
            )
            options = {"labels": labels, **changes, "scratch": False, **_VIEWS}
            cells.append(Cell(row, run, Measure("finetune", options), figures, baseline))
    return _table("semi", cells, "Table 8", wide=True)


def _voc() -> Table:
    supervised = Run("imagenet-supervised", "imagenet", 90, {"method": "supervised"})
    rows = {
        "Random": (_imagenet_run(200, _SIMCLR, trained=False), ""),
        "Supervised, 90 epochs": (supervised, ""),
    }
    for epochs in (200, 800):
        simclr = f"SimCLR, {epochs} epochs"
        rows[simclr] = (_imagenet_run(epochs, _SIMCLR), simclr)
        rows[f"WCL, {epochs} epochs"] = (_imagenet_run(epochs, {}, crops=True), simclr)
    measure = Measure("lowshot", {"costs": _COSTS, "image_size": 224}, data="voc")
    columns = {column: column.removeprefix("k=") for column in published("Table 7")["columns"]}
    cells = []
    for row, (run, baseline) in rows.items():
        is_published = row in published("Table 7")["rows"]
        fixed = tuple(
            Figure(column, key, published_figure("Table 7", row, column) if is_published else None)
            for column, key in columns.items()
        )
        best = tuple(Figure(column, f"{key}, {_BEST}") for column, key in columns.items())
        cells.append(Cell(row, run, measure, fixed, baseline))
        over = baseline and f"{baseline}, {_BEST}"
        cells.append(Cell(f"{row}, {_BEST}", run, measure, best, over))
    return _table("voc", cells, "Table 7", wide=True)


def _tsne() -> Table:
    figures = tuple(Figure(name, name) for name in ("silhouette", "compactness", "distance"))
    simclr, wcl = _imagenet100(_SIMCLR), _imagenet100({})
    cells = (
        Cell("SimCLR", simclr, Measure("project"), figures, "SimCLR"),
        Cell("WCL", wcl, Measure("project", against=simclr), figures, "SimCLR"),
    )
    return _table("tsne", cells, "Figure 4", unit="")


def _digits_cell(
    row: str, changes: Mapping[str, Any], baseline: str, crops: bool = False, epochs: int = 200
) -> Cell:
    run = Run("digits", "digits", epochs, changes, crops)
    return Cell(row, run, _LINEAR, (Figure("top-1", "top1"),), baseline)


def _mechanisms() -> Table:
    """Return the table of the mechanisms that the paper argues for without figures."""
    single: dict[str, Mapping[str, Any]] = {
        "SimCLR": _SIMCLR,
        "WCL": {},
        "without the swap": {"loss.swapped": False},
        "keys detached": {"loss.key_gradient": False},
        "labels from h": {"loss.labels_from": "h"},
        "positives summed": {"loss.positives": "sum"},
        "one shared head": {"loss.heads": "shared"},
        "φ alone": {"loss.nce": 0},
    }
    crops: dict[str, Mapping[str, Any]] = {
        "SimCLR, plain crops": {**_SIMCLR, **_PLAIN},
        "WCL, plain crops": _PLAIN,
        "WCL, crops of neighbors": {},
    }
    cells = [_digits_cell(row, changes, "SimCLR") for row, changes in single.items()]
    for row, changes in crops.items():
        cells.append(_digits_cell(row, changes, "SimCLR, plain crops", crops=True))
    # An epoch has four times as many steps at batch 64 as at 256: a quarter of the epochs has as
    # many steps as the other rows.
    batches = [(64, 200, ""), (64, 50, ", a quarter of the epochs"), (128, 200, ""), (512, 200, "")]
    for batch, epochs, suffix in batches:
        simclr = f"SimCLR, batch {batch}{suffix}"
        for method in ("SimCLR", "WCL"):
            row = f"{method}, batch {batch}{suffix}"
            changes = {"method": method.lower(), "batch_size": batch}
            cells.append(_digits_cell(row, changes, simclr, epochs=epochs))
    return Table("mechanisms", "The mechanisms of WCL, changed one at a time", tuple(cells))


_TABLES: dict[str, tuple[Callable[[], Table], str]] = {
    "cifar": (_cifar, "SimCLR and WCL by batch size and epochs, on CIFAR-10 and -100 (Table 1)"),
    "heads": (_heads, "the two heads and the losses of crops, one by one (Table 2)"),
    "warmup": (_warmup, "the epoch from which crops are cut from neighbors (Table 3)"),
    "cost": (_cost, "training time of WCL and of crops relative to SimCLR (Table 4)"),
    "imagenet": (_imagenet, "linear evaluation on ImageNet (Tables 4 to 6)"),
    "semi": (_semi, "fine-tuning with 1% and 10% of the labels of ImageNet (Table 8)"),
    "voc": (_voc, "SVMs on a few labeled images of VOC07 (Table 7)"),
    "tsne": (_tsne, "two t-SNE maps (Figure 4)"),
    "mechanisms": (_mechanisms, "one part of the method changed at a time; not in the paper"),
    "systems": (partial(systems, "digits"), "every system side by side; not in the paper"),
    "sweep": (partial(sweep, "digits"), "how the settings of the systems were chosen"),
}
NAMES = tuple(_TABLES)
NOT_IN_PAPER = ("mechanisms", "systems", "sweep")
DESCRIPTIONS = {name: description for name, (_, description) in _TABLES.items()}
