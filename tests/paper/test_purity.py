"""Gains against purity: the points of a folder by hand, and a picture that shows them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from plot_text import overlaps
from wcl.cli import run_command
from wcl.config import ReproduceConfig
from wcl.paper.cells import ResultStore
from wcl.paper.purity import Point, gains
from wcl.paper.purity_picture import draw, write_gains
from wcl.paper.scales import at_scale
from wcl.paper.tables import Cell


def workshop_in(folder: Path, data: str = "digits", **options: Any) -> ResultStore:
    names = ("digits", "cifar10", "cifar100", "imagenet")
    return ResultStore(folder, ReproduceConfig(**options), dict.fromkeys(names, data))


def cell_of(table: str, scale: str, row: str, column: str = "") -> Cell:
    """The cell of a row, of that column if there are several."""
    return next(
        cell
        for cell in at_scale(table, scale).cells
        if cell.row == row and (not column or column in [f.column for f in cell.figures])
    )


def put(
    shop: ResultStore, cell: Cell, seed: int, accuracy: float, purities: list[float] | None = None
) -> None:
    """A run that was made and measured, as far as its points depend on it."""
    run, result = shop.run_folder(cell.run, seed), shop.result_file(cell, seed)
    run.mkdir(parents=True, exist_ok=True)
    result.parent.mkdir(exist_ok=True)
    made = {"seed": seed, "data": shop.sources[cell.run.data]}
    made |= {"precision": shop.config.precision, "micro_batch_size": shop.config.micro_batch_size}
    (run / "config.yaml").write_text(json.dumps(made))
    lines = [
        {"kind": "epoch", "step": n, "epoch": n, "purity": p}
        | {"pair_precision": p / 2, "pair_recall": p / 4}
        for n, p in enumerate(purities or [], start=1)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures = {"1": 0.0, "3": accuracy, "10": 0.0, "top1": accuracy}
    result.write_text(json.dumps({"figures": figures}))


def table_is_there(folder: Path, name: str) -> None:
    (folder / f"{name}.json").write_text("{}")


def test_a_point_is_the_gain_of_a_row_and_the_purity_of_its_last_quarter(tmp_path: Path) -> None:
    shop = workshop_in(tmp_path)
    table_is_there(tmp_path, "mechanisms-digits")
    wcl = cell_of("mechanisms", "digits", "WCL")
    simclr = cell_of("mechanisms", "digits", "SimCLR")
    for seed, accuracy in ((0, 80.0), (1, 82.0)):
        put(shop, simclr, seed, accuracy)
    # Of eight epochs the last two.
    put(shop, wcl, 0, 83.5, [0.0] * 6 + [0.8, 0.9])
    put(shop, wcl, 1, 81.0, [0.0] * 6 + [0.5, 0.7])
    found = gains(shop)
    assert [(p.row, p.seed, p.data, p.figure, p.gain, p.family) for p in found] == [
        ("WCL", 0, "digits", "3 labels", 3.5, "WCL"),
        ("WCL", 1, "digits", "3 labels", -1.0, "WCL"),
    ]
    assert [point.purity for point in found] == pytest.approx([0.85, 0.6])
    assert [point.pair_precision for point in found] == pytest.approx([0.425, 0.3])
    assert [point.pair_recall for point in found] == pytest.approx([0.2125, 0.15])


def test_what_is_not_there_or_had_no_weak_labels_is_no_point(tmp_path: Path) -> None:
    shop = workshop_in(tmp_path)
    table_is_there(tmp_path, "mechanisms-digits")
    put(shop, cell_of("mechanisms", "digits", "SimCLR"), 0, 80.0)
    put(shop, cell_of("mechanisms", "digits", "WCL"), 1, 83.0, [0.9])  # SimCLR has not this seed
    put(shop, cell_of("mechanisms", "digits", "WCL, batch 64"), 0, 83.0, [0.9])  # no SimCLR of it
    put(shop, cell_of("mechanisms", "digits", "φ alone"), 0, 70.0)  # nothing logged
    assert gains(shop) == []
    assert write_gains(shop) is None
    put(shop, cell_of("mechanisms", "digits", "without the swap"), 0, 79.0, [0.5])
    assert [(p.row, p.gain, p.family) for p in gains(shop)] == [
        ("without the swap", -1.0, "WCL, one part changed")
    ]
    assert write_gains(shop) is None  # one is too few
    assert not list(tmp_path.glob("gain*"))


def test_all_tables_of_a_folder_count_whatever_the_present_one_is_made_with(tmp_path: Path) -> None:
    digits = workshop_in(tmp_path)
    cifar = workshop_in(tmp_path, "/elsewhere", precision="bf16-mixed", micro_batch_size=64)
    for name in ("mechanisms-digits", "heads-digits", "cifar-cpu"):
        table_is_there(tmp_path, name)
    put(digits, cell_of("mechanisms", "digits", "SimCLR"), 0, 80.0)
    put(digits, cell_of("mechanisms", "digits", "WCL"), 0, 83.0, [0.9])
    crops = cell_of("heads", "digits", "two heads, both losses of crops")
    put(digits, crops, 0, 84.0, [0.95])
    for epochs, accuracy in ((100, 50.0), (200, 60.0)):
        column = f"CIFAR-10, {epochs} epochs"
        put(cifar, cell_of("cifar", "cpu", "SimCLR, batch 256", column), 2, accuracy)
        wcl = cell_of("cifar", "cpu", "WCL, batch 256", column)
        put(cifar, wcl, 2, accuracy + epochs / 100, [0.5])
    expected = {
        ("two heads (WCL)", 0, "digits", "3 labels", 3.0, "WCL"),  # once, though `mechanisms` …
        ("two heads, both losses of crops", 0, "digits", "3 labels", 4.0, "WCL with crops"),
        ("WCL, batch 256", 2, "cifar10", "CIFAR-10, 100 epochs", 1.0, "WCL"),
        ("WCL, batch 256", 2, "cifar10", "CIFAR-10, 200 epochs", 2.0, "WCL"),
    }
    for shop in (digits, cifar):  # … has it too
        found = gains(shop)
        assert len(found) == 4
        assert {(p.row, p.seed, p.data, p.figure, p.gain, p.family) for p in found} == expected


@pytest.mark.parametrize(
    "settings",
    [
        b"\xff\xfe",
        b"[" * 10_000,
        b"seed: abc",
        b"seed: 2026-99-99",
        b"seed: 0\ndata: null\nprecision: 32-true\nmicro_batch: 0",
        b"seed: 0\ndata: digits\nprecision: 7-false\nmicro_batch: 0",
    ],
)
def test_folders_that_are_no_runs_are_passed_over(tmp_path: Path, settings: bytes) -> None:
    shop = workshop_in(tmp_path)
    table_is_there(tmp_path, "mechanisms-digits")
    put(shop, cell_of("mechanisms", "digits", "SimCLR"), 0, 80.0)
    put(shop, cell_of("mechanisms", "digits", "WCL"), 0, 83.0, [0.9])
    (tmp_path / "runs" / "strange").mkdir()
    (tmp_path / "runs" / "strange" / "config.yaml").write_bytes(settings)
    assert [point.gain for point in gains(shop)] == [3.0]


def test_rows_that_stand_against_anything_but_simclr_are_left_out(tmp_path: Path) -> None:
    shop = workshop_in(tmp_path)
    table_is_there(tmp_path, "warmup-digits")
    put(shop, cell_of("warmup", "digits", "plain crops"), 0, 80.0, [0.9])
    put(shop, cell_of("warmup", "digits", "warm-up of 25 epochs"), 0, 83.0, [0.9])
    assert gains(shop) == []


def test_made_up_pictures_count_only_as_long_as_there_is_nothing_else(tmp_path: Path) -> None:
    shop = workshop_in(tmp_path)
    for name in ("heads-smoke", "heads-digits"):
        table_is_there(tmp_path, name)
    for scale, accuracy in (("smoke", 30.0), ("digits", 80.0)):
        put(shop, cell_of("heads", scale, "g alone (SimCLR)"), 0, 25.0)
        put(shop, cell_of("heads", scale, "two heads (WCL)"), 0, accuracy, [0.9])
        (point,) = gains(shop)
        assert (point.data, point.gain) == (
            ("made-up", 5.0) if scale == "smoke" else ("digits", 55.0)
        )


def test_the_table_and_the_picture_are_written_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["mechanisms", "--only", "batch 512", "--seeds", "2", "--out", str(out)]
    assert run_command(["reproduce", *words, "--threads", "1", "--json"]) == 0
    said = capsys.readouterr()
    lines = json.loads(said.out)["lines"]
    assert str(out / "gain-by-purity.png") in said.err
    with (out / "gain-by-purity.csv").open() as file:
        points = list(csv.DictReader(file))
    assert [(p["row"], p["seed"], p["figure"]) for p in points] == [
        ("WCL, batch 512", seed, "3 labels") for seed in "01"
    ]
    (line,) = [one for one in lines if one["gain"] is not None and one["column"] == "3 labels"]
    assert np.mean([float(p["gain"]) for p in points]) == pytest.approx(line["gain"])
    assert all(0 < float(p["pair_precision"]) <= float(p["purity"]) <= 1 for p in points)
    assert all(0 < float(p["pair_recall"]) <= 1 for p in points)
    assert Image.open(out / "gain-by-purity.png").format == "PNG"


def _point(
    purity: float = 0.5, gain: float = 1.0, data: str = "digits", family: str = "WCL"
) -> Any:
    return Point("some", 0, data, "top-1", purity, gain, purity, purity, family)


def test_markers_are_where_their_values_are() -> None:
    points = [
        _point(0.5, -1.0),
        _point(0.6, 0.0, family="WCL, one part changed"),
        _point(0.7, 1.0, "cifar10", family="WCL with crops"),
    ]
    figure = draw(points)
    assert overlaps(figure) == []
    for axes in figure.axes:
        zero, *markers = axes.lines
        assert not np.any(zero.get_ydata())
        places = np.concatenate([line.get_xydata() for line in markers])
        assert places == pytest.approx(np.array([[50, -1], [60, 0], [70, 1]]))
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    families = ["WCL", "WCL, one part changed", "WCL with crops"]
    assert legend == [*families, "digits, 3 labels per class", "CIFAR-10, linear probe"]


def test_markers_differ_in_shape_or_fill_without_colors() -> None:
    kinds = [
        (data, family)
        for data in ("digits", "cifar10", "cifar100", "imagenet", "made-up")
        for family in ("WCL", "WCL, one part changed", "WCL with crops")
    ]
    figure = draw([_point(data=data, family=family) for data, family in kinds])
    assert overlaps(figure) == []
    markers = figure.axes[0].lines[1:]
    looks = {(line.get_marker(), line.get_fillstyle()) for line in markers}
    assert len(looks) == len(kinds)
