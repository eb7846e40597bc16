"""What figures are compared with: chance, the untrained network and the untouched encoder."""

import json
from pathlib import Path

import pytest
import torch

import wcl
from images import photo_folder
from runs import TINY, tiny_run
from wcl.cli import run_command
from wcl.data import open_source
from wcl.evaluation.references import chance_level, pretrained_encoder, untrained_encoder
from wcl.models.encoder import load
from wcl.models.weights_file import read_weights, write_weights
from wcl.system.errors import InputError
from weight_files import weights_file


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights_file(tmp_path_factory.mktemp("weights") / "mine.safetensors")


@pytest.fixture(scope="module")
def adapted(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = {**TINY["model"], "backbone": "test_resnet", "weights": str(weights)}
    out = tmp_path_factory.mktemp("runs") / "adapted"
    return tiny_run(out, epochs=1, image_size=32, model=model)


def test_chance_is_the_most_frequent_class(tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 5)):
        photo_folder(tmp_path, (name,), each=count)
    source = open_source(str(tmp_path))
    assert chance_level(source) == 5 / 8


def test_chance_of_several_labels_is_the_mean_share_of_a_class() -> None:
    source = open_source("digits")
    source.labels = None
    source.multi_labels = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0], [-1, 0, 0]])
    assert chance_level(source) == pytest.approx((2 / 3 + 1 / 4) / 2)


def test_references_are_measured_beside_a_result_and_once(
    adapted: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WCL_CACHE", str(tmp_path))
    found = wcl.evaluate(adapted, "knn", "digits").as_dict()
    encoder = load(adapted)
    for name, other in (
        ("untrained", untrained_encoder(encoder)),
        ("pretrained", pretrained_encoder(encoder)),
    ):
        assert other is not None
        assert found[name] == wcl.evaluate(other, "knn", "digits", references=False).top1
        assert 0 < found[f"{name}_margin"] < 0.1
    assert found["interval"][0] < found["top1"] < found["interval"][1]
    assert found["pretrained_run"] == f"timm:test_resnet:32@{weights}"
    assert wcl.load(found["pretrained_run"]) is not None

    files = [*(adapted / "references").iterdir()]
    assert len(files) == 2
    for file in files:  # as nobody would measure it
        write_weights(file, {**read_weights(file), "scores": torch.tensor([0.125])})
    again = wcl.evaluate(adapted, "knn", "digits", confusion=str(tmp_path / "c.csv")).as_dict()
    assert again["untrained"] == again["pretrained"] == 0.125
    assert wcl.evaluate(adapted, "knn", "digits", k=1).beside["untrained"] != 0.125


def test_every_number_of_labels_has_its_references(adapted: Path) -> None:
    found = wcl.evaluate(adapted, "lowshot", "digits", k=1, draws=2)
    for row in found.rows:
        assert row["interval"][0] < row["mean"] < row["interval"][1]
        assert {"untrained", "untrained_margin", "pretrained", "pretrained_margin"} <= row.keys()
    assert found.beside["untrained"] == found.rows[-1]["untrained"]


def test_a_reference_that_is_gone_is_reported_and_left_out(
    adapted: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = weights.rename(tmp_path / "moved.safetensors")
    try:
        assert run_command(["eval", "knn", str(adapted), "--data", "digits", "--json"]) == 0
    finally:
        moved.rename(weights)
    captured = capsys.readouterr()
    assert "pretrained" not in json.loads(captured.out)
    assert "untrained" in json.loads(captured.out)
    assert f"pretrained network cannot be measured: {weights}: no such weights" in captured.err


def test_weights_that_changed_are_not_those_a_run_started_from(
    adapted: Path, weights: Path
) -> None:
    content = weights.read_bytes()
    try:
        weights_file(weights, num_classes=5)
        with pytest.raises(InputError, match="not the weights that were asked for"):
            pretrained_encoder(load(adapted))
    finally:
        weights.write_bytes(content)


def test_figures_and_their_references_are_printed(
    adapted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["eval", "knn", str(adapted), "--data", "digits"]) == 0
    printed = capsys.readouterr().out
    for word in ("interval", "untrained", "pretrained", "chance", "0.122", "±"):
        assert word in printed


def test_the_random_state_of_the_caller_is_kept(adapted: Path) -> None:
    encoder = load(adapted)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    untrained_encoder(encoder)
    assert torch.equal(torch.rand(1), expected)
