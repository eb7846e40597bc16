"""All evaluations at once: one table, in the terminal and in two files."""

import json
import shutil
from pathlib import Path

import pytest

import wcl
from images import flat_folder, photo_folder
from runs import photo_run
from wcl.cli import run_command
from wcl.evaluation import evaluate_all, features
from wcl.evaluation.crop_features import CropFeatures
from wcl.system.run_folder import RunFolder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_folder(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(data, tmp_path_factory.mktemp("runs") / "photos", epochs=1)


def test_every_protocol_that_the_labels_allow_is_in_the_table(
    run: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "all", str(run), "--data", str(data), "--labels", "3-per-class"]
    assert run_command([*words, "--num_workers", "0", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    rows = {row["protocol"]: row for row in found["rows"]}
    assert list(rows) == ["knn", "linear", "finetune", "lowshot"]
    shots = [row["setting"] for row in found["rows"] if row["protocol"] == "lowshot"]
    assert shots == ["1 per class", "2 per class", "4 per class", "8 per class", "all labels"]
    assert found["left_out"] == {}
    for row in found["rows"]:  # told as they were found
        assert f"{row['encoder']:.3f}, untrained {row['untrained']:.3f}" in captured.err
    assert rows["knn"]["encoder"] == wcl.evaluate(run, "knn", data).top1
    assert rows["finetune"]["untrained"] == found["results"]["finetune"]["scratch_top1"]
    for row in rows.values():
        assert 0 <= row["untrained"] <= 1 and row["untrained_margin"] > 0 and row["chance"] == 0.5
        assert row["interval"][0] <= row["encoder"] <= row["interval"][1]
    assert json.loads((run / "evaluation.json").read_text()) == found
    assert found["sha256"] == wcl.load(run).description.sha256
    lines = (run / "evaluation.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[4:8]] == [f"| {name}" for name in rows]


def test_the_second_time_no_features_are_computed_and_the_figures_are_the_same(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "all", str(run), "--data", str(data), "--labels", "2-per-class"]
    tables = []
    for _ in range(2):
        assert run_command([*words, "--num_workers", "0", "--json"]) == 0
        tables.append(json.loads(capsys.readouterr().out)["rows"])
        monkeypatch.setattr(features, "pixel_batches", None)  # cannot be called
        monkeypatch.setattr(CropFeatures, "_batches", None)
    assert tables[0] == tables[1]


def test_a_protocol_that_cannot_be_carried_out_is_named_with_its_reason(
    run: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "all", str(run), "--data", str(data), "--labels", "1000-per-class"]
    assert run_command([*words, "--num_workers", "0"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "finetune is left out: " in said
    assert "Did training help? " in said
    assert "knn" in said


def test_what_all_protocols_have_to_say_is_said_once(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "test"):
        shutil.copytree(data, tmp_path / split)
        (tmp_path / split / "cat" / "damaged.jpg").write_bytes(b"")
    words = ["eval", "all", str(run), "--data", str(tmp_path), "--labels", "2-per-class"]
    for _ in range(2):  # and again by the next command
        assert run_command([*words, "--num_workers", "0"]) == 0
        said = capsys.readouterr().err
        assert said.count("k = 16, 32, 64 left out: ") == 1
        assert said.count("test images are also training images") == 1
        assert said.count(f"{tmp_path / 'test'}: 1 of 25 images cannot be read") == 1
        assert [said.count(f"{name} …") for name in ("knn", "linear", "lowshot")] == [1, 1, 1]


@pytest.mark.parametrize("labels", ["bogus", "10", "0%", "no/such/list.txt", "x" * 300])
def test_labels_that_mean_nothing_are_refused_before_anything_runs(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "encoder.safetensors").write_bytes(b"damaged")
    words = ["eval", "all", str(tmp_path), "--data", "digits", "--labels", labels]
    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert labels.rstrip("%")[:10] in said
    assert "encoder" not in said
    assert said.count("\n") == 1


def test_figures_that_cannot_be_kept_are_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evaluation.md").mkdir()
    found = {"run": "a", "data": "b", "rows": [], "left_out": {}, "pretrained_run": ""}
    evaluate_all._write(RunFolder(tmp_path), found)
    assert "the table is not written" in capsys.readouterr().err


def test_data_without_labels_are_refused_in_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "all", str(run), "--data", str(flat_folder(tmp_path / "flat"))]
    assert run_command(words) == 2
    assert "has no labels" in capsys.readouterr().err.splitlines()[-1]
