"""The comparison of all systems: their rows, their accuracies, their costs and equal times."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runs import tiny_run
from wcl.apps.demo import accuracies
from wcl.config import ReproduceConfig
from wcl.data import open_splits
from wcl.evaluation import evaluate
from wcl.methods import METHODS
from wcl.models.encoder import load
from wcl.paper.cost import _Steps, relative_cost
from wcl.paper.frozen import frozen_accuracies
from wcl.paper.listing import _seconds_per_image
from wcl.paper.result_store import ResultStore, settings_of
from wcl.paper.scales import at_scale
from wcl.paper.systems import SYSTEMS, systems
from wcl.paper.tables import Cell, Run
from wcl.system.errors import InputError


def cells(row: str) -> dict[str, Cell]:
    return {cell.measure.protocol: cell for cell in systems("digits").cells if cell.row == row}


def test_every_method_is_compared() -> None:
    """But for those of ours: one starts from pretrained weights, the other is a variant of WCL."""
    compared = set(METHODS) - {"meanshift", "softwcl"}
    assert {system.method for system in SYSTEMS.values()} == compared


@pytest.mark.parametrize("scale", ["digits", "cpu"])
def test_all_systems_have_the_same_network_data_augmentation_and_epochs(scale: str) -> None:
    config = ReproduceConfig()
    found = [
        settings_of(replace(cell.run, time_of=None), 0, "", config) for cell in systems(scale).cells
    ]
    for name in ("epochs", "batch_size", "image_size", "limit"):
        assert len({getattr(each, name) for each in found}) == 1, name
    assert len({(each.model.backbone, each.model.stem) for each in found}) == 1
    assert len({str(each.augment) for each in found}) == 1


@pytest.mark.parametrize("scale", ["digits", "cpu"])
def test_the_sweep_has_as_many_candidates_for_each_system_and_other_seeds(scale: str) -> None:
    table = at_scale("sweep", scale)
    rows = [cell.row for cell in table.cells]
    counts = {name: sum(row.startswith(f"{name}: ") for row in rows) for name in SYSTEMS}
    assert len(set(counts.values())) == 1
    assert table.first_seed >= 5 > at_scale("systems", scale).first_seed


def test_accuracies_are_those_of_the_evaluations(tmp_path: Path) -> None:
    encoder = load(tiny_run(tmp_path / "run"))
    found = frozen_accuracies(encoder, *open_splits("digits"))
    few = [100 * value for value in accuracies(encoder)][:3]
    assert [found["1"], found["3"], found["10"]] == pytest.approx(few)
    assert found["knn"] == pytest.approx(100 * evaluate(encoder, "knn", "digits").top1)
    # The probe of random crops, which the digits do not have, sees the same images.
    assert found["linear"] == pytest.approx(100 * evaluate(encoder, "linear", "digits").top1, abs=3)


def test_memory_counts_networks_once_and_activations_by_image() -> None:
    """The loss of BYOL is a sum over images, so its activations are proportional to the batch."""
    run = cells("BYOL")["frozen"].run

    def count(batch_size: int) -> int:
        config = settings_of(
            replace(run, changes={**run.changes, "batch_size": batch_size}),
            0,
            "",
            ReproduceConfig(),
        )
        return _Steps(config, 64).bytes_of_step()

    small, middle, large = count(16), count(32), count(48)
    assert large - middle == middle - small
    method = _Steps(settings_of(run, 0, "", ReproduceConfig()), 256)._method
    trained = sum(p.nbytes for p in method.parameters() if p.requires_grad)
    frozen = sum(p.nbytes for p in method.parameters() if not p.requires_grad)
    # Weights, gradients, two moments of AdamW and the target network, whatever the batch.
    assert small - (middle - small) == pytest.approx(4 * trained + frozen, rel=0.02)


def test_costs_are_relative() -> None:
    config = settings_of(cells("SimCLR")["frozen"].run, 0, "", ReproduceConfig())
    small = replace(config, batch_size=16)
    assert relative_cost(small, small, 64) == {"time": 1, "memory": 1}
    larger = relative_cost(replace(config, batch_size=64), small, 64)
    assert 1 < larger["memory"] < 5


def test_runs_of_equal_time_have_as_many_epochs_as_fit(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, ReproduceConfig(scale="digits"), {"digits": "digits"})
    (tmp_path / "results").mkdir()
    cell = cells("BYOL, equal time")["frozen"]
    assert store.figures(cell, 0) is None  # the cost is not known yet
    cost = {"figures": {"time": 1.6, "memory": 1.0}}
    file = store.result_file(cells("BYOL")["cost"], 3)
    file.write_text(json.dumps(cost), encoding="utf-8")
    run: Run = cells("BYOL")["frozen"].run
    expected = replace(run, epochs=round(run.epochs / 1.6))
    assert store.run_folder(cell.run, 2) == store.run_folder(expected, 2)


@pytest.mark.parametrize(
    ("table", "scale", "row"),
    [
        ("systems", "digits", "FNCancel"),
        ("systems", "digits", "SwAV"),
        ("systems", "cpu", "supervised"),
        ("sweep", "digits", "PCL v2: lr 0.004, clusters 40"),
    ],
)
def test_every_system_is_timed_with_few_images(table: str, scale: str, row: str) -> None:
    [cell, *_] = [cell for cell in at_scale(table, scale).cells if cell.row == row]
    config = settings_of(cell.run, 0, "", ReproduceConfig(threads=1))
    assert _seconds_per_image(config, cell.run.data, scale) > 0


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, ReproduceConfig(), {"digits": "digits"})
    cost = cells("BYOL")["cost"]
    equal = next(cell for cell in systems("digits").cells if cell.row == "BYOL, equal time")
    file = store.result_file(cost, 0)
    file.parent.mkdir()
    for damaged in ("", "[]", "{}", '{"figures": []}', '{"figures": {"time": "long"}}'):
        file.write_text(damaged)
        for cell in (cost, equal):
            with pytest.raises(InputError, match=f"{file.name}: damaged; delete it"):
                store.figures(cell, 0)
