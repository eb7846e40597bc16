"""Gains and the quality of weak labels, against runs and results written by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wcl.cli import run_command
from wcl.config import ReproduceConfig
from wcl.paper.purity import Point, points_of
from wcl.paper.result_store import ResultStore
from wcl.paper.scales import at_scale
from wcl.paper.tables import Cell


def store_in(folder: Path) -> ResultStore:
    return ResultStore(folder, ReproduceConfig(), {"digits": "digits"})


def cell_of(table: str, row: str) -> Cell:
    return next(cell for cell in at_scale(table, "digits").cells if cell.row == row)


def points_in(store: ResultStore, table: str = "mechanisms") -> list[Point]:
    return points_of(at_scale(table, "digits"), store, range(3))


def put(
    store: ResultStore, cell: Cell, seed: int, accuracy: float, purities: list[float] | None = None
) -> None:
    """Write a run and its result, as far as points depend on them."""
    run, result = store.run_folder(cell.run, seed), store.result_file(cell, seed)
    run.mkdir(parents=True, exist_ok=True)
    result.parent.mkdir(exist_ok=True)
    lines: list[dict[str, Any]] = [
        {"kind": "epoch", "step": n, "epoch": n, "purity": p}
        | {"pair_precision": p / 2, "pair_recall": p / 4}
        for n, p in enumerate(purities or [], start=1)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result.write_text(json.dumps({"figures": {"1": 0.0, "3": accuracy, "10": 0.0}}))


def test_a_point_is_the_gain_of_a_row_and_the_purity_of_its_last_quarter(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    wcl, simclr = cell_of("mechanisms", "WCL"), cell_of("mechanisms", "SimCLR")
    for seed, accuracy in ((0, 80.0), (1, 82.0)):
        put(store, simclr, seed, accuracy)
    # Of eight epochs the last two.
    put(store, wcl, 0, 83.5, [0.0] * 6 + [0.8, 0.9])
    put(store, wcl, 1, 81.0, [0.0] * 6 + [0.5, 0.7])
    points = points_in(store)
    assert [(p.row, p.seed, p.data, p.figure, p.gain, p.family) for p in points] == [
        ("WCL", 0, "digits", "3 labels", 3.5, "WCL"),
        ("WCL", 1, "digits", "3 labels", -1.0, "WCL"),
    ]
    assert [point.purity for point in points] == pytest.approx([0.85, 0.6])
    assert [point.pair_precision for point in points] == pytest.approx([0.425, 0.3])
    assert [point.pair_recall for point in points] == pytest.approx([0.2125, 0.15])
    runs = [(tmp_path / "runs" / p.run, tmp_path / "runs" / p.baseline) for p in points]
    assert runs == [
        (store.run_folder(wcl.run, seed), store.run_folder(simclr.run, seed)) for seed in (0, 1)
    ]


def test_cells_that_are_not_done_or_have_no_weak_labels_have_no_point(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, cell_of("mechanisms", "SimCLR"), 0, 80.0)
    put(store, cell_of("mechanisms", "WCL"), 1, 83.0, [0.9])  # no SimCLR with this seed
    put(store, cell_of("mechanisms", "WCL, batch 64"), 0, 83.0, [0.9])  # no SimCLR at this batch
    put(store, cell_of("mechanisms", "φ alone"), 0, 70.0)  # nothing logged
    assert points_in(store) == []
    put(store, cell_of("mechanisms", "without the swap"), 0, 79.0, [0.5])
    assert [(p.row, p.gain, p.family) for p in points_in(store)] == [
        ("without the swap", -1.0, "WCL, one part changed")
    ]


def test_tables_that_compare_the_same_runs_name_them_alike(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, cell_of("mechanisms", "SimCLR"), 0, 80.0)
    put(store, cell_of("mechanisms", "WCL"), 0, 83.0, [0.9])
    put(store, cell_of("heads", "two heads, both losses of crops"), 0, 84.0, [0.95])
    (wcl,) = points_in(store)
    same, crops = points_in(store, "heads")
    assert (wcl.run, wcl.baseline, wcl.gain) == (same.run, same.baseline, same.gain)
    assert (crops.gain, crops.family) == (4.0, "WCL with crops")


def test_rows_compared_with_anything_but_simclr_are_left_out(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, cell_of("warmup", "plain crops"), 0, 80.0, [0.9])
    put(store, cell_of("warmup", "warm-up of 25 epochs"), 0, 83.0, [0.9])
    assert points_in(store, "warmup") == []


def test_a_table_has_its_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mechanisms", "--only", "batch 512", "--seeds", "2", "--out", str(tmp_path / "out")]
    assert run_command(["reproduce", *words, "--threads", "1", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    points = [Point(**values) for values in table["points"]]
    assert [(p.row, p.seed, p.figure) for p in points] == [
        ("WCL, batch 512", seed, "3 labels") for seed in (0, 1)
    ]
    (line,) = [
        one for one in table["lines"] if one["gain"] is not None and one["column"] == "3 labels"
    ]
    assert np.mean([p.gain for p in points]) == pytest.approx(line["gain"])
    assert all(0 < p.pair_precision <= p.purity <= 1 for p in points)
    assert all(0 < p.pair_recall <= 1 for p in points)
