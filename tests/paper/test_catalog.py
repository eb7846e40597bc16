"""Which cells there are, with which settings, at each scale."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from wcl.config import PROTOCOLS, AugmentConfig, PretrainConfig, ReproduceConfig, flat
from wcl.config.validation import check
from wcl.paper.catalog import NAMES, NOT_IN_PAPER, table
from wcl.paper.result_store import ResultStore, figures_of, settings_of
from wcl.paper.scales import SCALES, at_scale
from wcl.paper.tables import Cell
from wcl.system.errors import InputError

EVERY = [(name, scale) for scale, found in SCALES.items() for name in found.tables]


def settings(cell: Cell) -> PretrainConfig:
    return settings_of(cell.run, 0, "digits", ReproduceConfig())


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_cell_has_settings_and_a_measure_that_exist(name: str, scale: str) -> None:
    for cell in at_scale(name, scale).cells:
        config = dataclasses.replace(settings(cell), out="x")
        check(dataclasses.replace(config, epochs=config.epochs or 1))  # 0: not trained
        known = {**PROTOCOLS, **dict.fromkeys(("frozen", "time", "pairs", "cost"))}
        assert cell.measure.protocol in known
        if (options := known[cell.measure.protocol]) is not None:
            options(**cell.measure.options)


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_figure_occurs_once_and_its_baseline_exists(name: str, scale: str) -> None:
    cells = at_scale(name, scale).cells
    places = Counter((cell.row, figure.column) for cell in cells for figure in cell.figures)
    assert set(places.values()) == {1}
    assert all((c.baseline, f.column) in places for c in cells if c.baseline for f in c.figures)


def test_the_tables_have_the_cells_of_the_paper() -> None:
    figures = {
        name: sum(len(cell.figures) for cell in table(name).cells)
        for name in NAMES
        if name not in NOT_IN_PAPER
    }
    assert figures == {
        "cifar": 48,
        "heads": 7,
        "warmup": 6,
        "cost": 3,
        "imagenet": 9,
        "semi": 20,
        "voc": 96,
        "tsne": 6,
    }


def test_a_cell_at_the_scale_of_the_paper_has_its_settings() -> None:
    cell = next(c for c in table("cifar").cells if c.figures[0].paper == 87.81)
    config = settings(cell)
    assert (config.method, config.batch_size, config.epochs) == ("wcl", 128, 300)
    assert (config.model.backbone, config.optim.name, config.crops.count) == ("resnet50", "lars", 0)
    assert cell.measure.options["mode"] == "paper"
    warmup = {c.figures[0].paper: settings(c).crops for c in table("warmup").cells}
    assert [crops.warmup * 200 for crops in warmup.values() if crops.neighbors] == [
        0,
        25,
        50,
        75,
        100,
    ]
    assert not warmup[79.77].neighbors


@pytest.mark.parametrize("scale", ["paper", "cpu"])
@pytest.mark.parametrize("name", ["heads", "warmup", "imagenet", "semi"])
def test_all_rows_on_imagenet_are_evaluated_alike(name: str, scale: str) -> None:
    """Whatever the size and the crops of pretraining, the size and crops of evaluation are one."""
    cells = at_scale(name, scale).cells
    own = {"labels", "start", "encoder_lr", "lr"} if name == "semi" else set()
    found = {
        str({key: value for key, value in cell.measure.options.items() if key not in own})
        for cell in cells
    }
    assert len(found) == 1
    options = cells[0].measure.options
    expected = {"paper": (224, (0.08, 1.0)), "cpu": (32, (0.2, 1.0))}[scale]
    assert (options["image_size"], options["scale"]) == expected
    if name != "semi":
        assert options.get("nesterov", False) == (scale == "paper")
    views = {(settings(cell).image_size, settings(cell).augment.scale) for cell in cells}
    if scale == "paper" and name == "imagenet":
        assert views == {(224, (0.08, 1.0)), (160, (0.14, 1.0)), (224, (0.14, 1.0))}


def test_a_row_on_cifar_is_evaluated_as_the_paper_says() -> None:
    assert {str(cell.measure.options) for cell in table("cifar").cells} == {"{'mode': 'paper'}"}


def test_the_baselines_of_few_labels_are_trained_or_not_as_they_are_named() -> None:
    for scale in ("paper", "cpu"):
        semi = {cell.row: cell for cell in at_scale("semi", scale).cells}
        voc = {cell.row: cell for cell in at_scale("voc", scale).cells}
        assert settings(semi["Supervised"]).epochs == settings(voc["Random"]).epochs == 0
        assert settings(voc["Supervised, 90 epochs"]).method == "supervised"
        assert settings(voc["Supervised, 90 epochs"]).optim.name == "sgd"
        for wcl, simclr in (
            (semi["WCL, from the pool"], semi["SimCLR v1, from the pool"]),
            (semi["WCL, from the projection"], semi["SimCLR v2 (R50), from the projection"]),
            (voc["WCL, 800 epochs"], voc["SimCLR, 800 epochs"]),
            (voc["WCL, 200 epochs, best on test"], voc["SimCLR, 200 epochs, best on test"]),
        ):
            assert wcl.baseline == simclr.row
            assert wcl.measure == simclr.measure
            assert (settings(wcl).method, settings(simclr).method) == ("wcl", "simclr")
            assert settings(wcl).epochs == settings(simclr).epochs
    assert settings(voc["Supervised, 90 epochs"]).epochs == 9  # a tenth of the paper's


def test_the_fixed_cost_and_the_best_on_test_are_one_evaluation(tmp_path: Path) -> None:
    cells = {cell.row: cell for cell in table("voc").cells}
    fixed, best = cells["WCL, 800 epochs"], cells["WCL, 800 epochs, best on test"]
    store = ResultStore(tmp_path, ReproduceConfig(), {"imagenet": "x", "voc": "y"})
    assert store.result_file(fixed, 0) == store.result_file(best, 0)
    assert fixed.columns == best.columns
    assert all(figure.paper is None for figure in best.figures)
    rows = [
        {"k": 1, "mean": 0.5, "best_on_test": 0.6},
        {"k": "all", "mean": 0.7, "best_on_test": 0.7},
    ]
    found = figures_of(fixed.measure, {"rows": rows})
    assert {f.column: found[f.key] for f in fixed.figures if f.key in found} == {
        "k=1": 50,
        "all": 70,
    }
    assert {f.column: found[f.key] for f in best.figures if f.key in found} == {
        "k=1": 60,
        "all": 70,
    }


def test_the_rows_of_the_two_heads_have_their_losses() -> None:
    rows = {cell.row: settings(cell) for cell in table("heads").cells}
    assert [config.method for config in rows.values()] == ["simclr", *["wcl"] * 6]
    assert [config.crops.count for config in rows.values()] == [0, 0, 0, 0, 4, 4, 4]
    assert not any(c.crops.neighbors for c in rows.values() if c.crops.count)
    assert rows["φ alone"].loss.nce == 0
    assert rows["both losses on one head"].loss.heads == "shared"
    assert (rows["two heads, L_cNCE"].loss.cnce, rows["two heads, L_cNCE"].loss.cswap) == (1, 0)
    assert (rows["two heads, L_cswap"].loss.cnce, rows["two heads, L_cswap"].loss.cswap) == (0, 0.5)


def test_each_mechanism_differs_from_wcl_in_its_own_setting_alone() -> None:
    cells = {cell.row: cell for cell in at_scale("mechanisms", "digits").cells}
    plain = settings(cells["WCL"])
    mechanisms: tuple[tuple[str, str, Any], ...] = (
        ("without the swap", "swapped", False),
        ("keys detached", "key_gradient", False),
        ("labels from h", "labels_from", "h"),
        ("positives summed", "positives", "sum"),
        ("one shared head", "heads", "shared"),
        ("φ alone", "nce", 0),
    )
    for row, name, value in mechanisms:
        changed = dataclasses.replace(plain.loss, **{name: value})
        assert settings(cells[row]) == dataclasses.replace(plain, loss=changed)
        assert changed != plain.loss
    crops = settings(cells["WCL, plain crops"]).crops
    assert crops.count
    assert not crops.neighbors
    assert settings(cells["WCL, crops of neighbors"]).crops.neighbors


def test_small_batches_for_a_quarter_of_the_epochs_take_the_steps_of_the_usual_ones() -> None:
    cells = {cell.row: settings(cell) for cell in at_scale("mechanisms", "digits").cells}
    rows = (
        "WCL",
        "SimCLR, batch 64, a quarter of the epochs",
        "WCL, batch 64, a quarter of the epochs",
    )
    steps = {1297 // cells[row].batch_size * cells[row].epochs for row in rows}
    assert steps == {500}


DIFFERENCES = {
    "data": "images",
    "limit": "images",
    "classes": "images",
    "augment.mean": "images",
    "augment.std": "images",
    "image_size": "pixels",
    "epochs": "epochs",
    "batch_size": "batch size (256",
    "model.backbone": "network",
    "model.stem": "first convolution of stride 2",
    "model.head_layers": "heads (2 layers",
    "model.head_hidden_dim": "units",
    "model.head_out_dim": "outputs",
    "optim.name": "optimizer",
    "optim.lr": "learning rate",
    "optim.lr_scaling": "learning rate",
    "optim.weight_decay": "weight decay",
    "optim.warmup_epochs": "warm-up",
    "mild_augment_epochs": "the same in all epochs",
    "augment.blur": "blur",
    **dict.fromkeys(
        (f"augment.{name}" for name in ("brightness", "contrast", "saturation", "hue", "jitter")),
        "colors",
    ),
    "augment.grayscale": "colors",
    "crops.count": "small crops (4",
    "crops.size": "16 pixels",
    "crops.scale": "small crops",
}
"""What the caveat says of each setting; `crops.warmup` is the same share of the run."""


@pytest.mark.parametrize(
    ("name", "scale"),
    [(n, s) for n, s in EVERY if s in ("cpu", "digits") and n not in NOT_IN_PAPER],
)
def test_the_caveat_names_everything_that_differs_from_the_paper(name: str, scale: str) -> None:
    small = at_scale(name, scale)
    paper = {(cell.row, *cell.columns[:1]): cell for cell in table(name).cells}
    rows = {cell.row: cell for cell in table(name).cells}
    differing: set[str] = set()
    for cell in small.cells:
        original = paper.get((cell.row, *cell.columns[:1]), rows[cell.row])
        ours, theirs = (flat(dataclasses.asdict(settings(c))) for c in (cell, original))
        differing |= {key for key in ours.keys() | theirs.keys() if ours[key] != theirs[key]}
    differing -= {"crops.warmup", "log.every"}
    named = dict(DIFFERENCES)
    if scale == "digits":  # whose whole augmentation is another one
        own = {f"augment.{field.name}" for field in dataclasses.fields(AugmentConfig)}
        named |= dict.fromkeys(own - {"augment.mean", "augment.std"}, "augmentation")
    else:
        named["augment.scale"] = "scale of the large views (0.2–1"
    caveat = small.notes[-1]
    assert {key for key in differing if named.get(key, "?") not in caveat} == set()


def test_an_unknown_scale_of_a_table_is_refused_with_those_it_has() -> None:
    with pytest.raises(InputError, match="voc has no scale digits; it has smoke, cpu, paper"):
        at_scale("voc", "digits")
