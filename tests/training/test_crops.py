"""Runs with small crops, of the images themselves and of their neighbors."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import wcl
from images import photo_folder, picture, save_jpeg
from runs import (
    ABLATION,
    CROPS,
    TINY,
    assert_same_run,
    checkpoint,
    metrics,
    photo_run,
    stopped_after,
    tiny_run,
)
from wcl.config import CropsConfig
from wcl.config.layering import settings
from wcl.data import ArraySource, in_memory, limited, open_source
from wcl.data.loader import Loader
from wcl.methods import method_settings
from wcl.models.multiview import embed_views
from wcl.neighbors.crops import NeighborCrops
from wcl.system.errors import InputError
from wcl.training.stop import StopRequest
from wcl.training.views import view_specs

CPU = torch.device("cpu")
ALL_LOSSES = {"nce", "swap", "cnce", "cswap"}
# The whole is three epochs of four steps: one of plain crops, two of neighbors'.
WHOLE: dict[str, Any] = {"limit": 64, "batch_size": 16, "epochs": 3, "save_every": 2}
KNN = {**CROPS, "warmup": 1}


def lines_of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in metrics(run) if line["kind"] == kind]


# -- the warm-up ------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 25, 50, 75, 100])
def test_a_warm_up_in_epochs_is_that_share_of_the_run(epochs: int, tmp_path: Path) -> None:
    source = limited(open_source("digits"), 16, 0)
    first = []
    for warmup in (epochs, epochs / 200):
        config = CropsConfig(count=2, warmup=warmup)
        first.append(NeighborCrops(config, 200, source, 4, CPU, tmp_path / "bank").first_epoch)
    assert first == [epochs, epochs]


def test_the_recipe_with_crops_is_the_one_without_but_for_them() -> None:
    """A warm-up of a quarter, which is 25 of its epochs."""
    plain = settings("cifar10-cpu", {"out": "x"}, method_settings)
    crops = settings("cifar10-cpu-crops", {"out": "x"}, method_settings)
    assert dataclasses.replace(crops, crops=plain.crops) == plain
    assert plain.crops.count == 0
    assert (crops.crops.count, crops.crops.size, crops.crops.neighbors) == (4, 16, True)
    assert crops.crops.warmup * crops.epochs == 25


# -- runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of crops, of neighbors from its second epoch on, that was never stopped."""
    return tiny_run(tmp_path_factory.mktemp("runs") / "whole", crops=KNN, **WHOLE)


@pytest.mark.parametrize("row", ABLATION)
def test_every_row_of_the_ablation_trains_with_its_losses_alone(row: str, tmp_path: Path) -> None:
    loss, terms, heads = ABLATION[row]
    # Two steps of each kind of crop.
    run = tiny_run(tmp_path / "run", limit=32, batch_size=16, crops=CROPS, loss=loss)
    weights = {"nce": 1.0, "swap": 0.5, "cnce": 1.0, "cswap": 0.5}
    lines = metrics(run)
    assert len(lines) == 4
    for line in lines:
        assert ALL_LOSSES & line.keys() == terms
        expected = sum(weights[name] * line[name] for name in terms)
        assert line["loss"] == pytest.approx(expected, rel=1e-5)
    encoder = wcl.load(run)
    assert tuple(encoder.heads) == heads


def test_simclr_trains_with_crops(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", limit=32, batch_size=16, crops=CROPS, method="simclr")
    for line in metrics(run):
        assert ALL_LOSSES & line.keys() == {"nce", "cnce"}
        assert line["loss"] == pytest.approx(line["nce"] + line["cnce"], rel=1e-5)


def test_plain_crops_and_those_of_neighbors_differ_only_after_the_warm_up(
    whole: Path, tmp_path: Path
) -> None:
    plain = tiny_run(tmp_path / "plain", crops={**KNN, "neighbors": False}, **WHOLE)
    pairs = zip(lines_of(plain, "step"), lines_of(whole, "step"), strict=True)
    assert [a == b for a, b in pairs] == [True] * 2 + [False] * 4
    assert not (plain / "neighbors.png").exists()
    assert not any("neighbor" in name or "search" in name for name in metrics(plain)[-1])
    assert checkpoint(plain)["neighbor_crops"] == {}


def test_without_a_warm_up_the_first_epoch_is_plain_all_the_same(
    whole: Path, tmp_path: Path
) -> None:
    """There are no features yet in which to look for neighbors."""
    run = tiny_run(tmp_path / "run", crops={**KNN, "warmup": 0}, **WHOLE)
    assert [line["loss"] for line in metrics(run)] == [line["loss"] for line in metrics(whole)]


def test_epochs_say_how_good_the_neighbors_are(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    for line in epochs:
        assert 0 <= line["neighbor_same_class"] <= 1
        assert line["search_recall"] == 1
        assert line["search_seconds"] > 0
        assert 0 < line["search_share"] < 1
    # The first search has none before it to compare with.
    assert ["neighbors_changed" in line for line in epochs] == [False, True, True]
    assert all(0 <= line["neighbors_changed"] <= 1 for line in epochs[1:])
    # Plain crops are of the image's class; an epoch's neighbors are those the last one found.
    assert epochs[0]["crop_same_class"] == 1
    for before, after in itertools.pairwise(epochs):
        assert after["crop_same_class"] == pytest.approx(before["neighbor_same_class"])


def test_the_neighbors_are_the_nearest_in_the_bank_and_are_drawn(whole: Path) -> None:
    state = checkpoint(whole)["neighbor_crops"]
    features, table = state["features"].double(), state["table"]
    assert state["seen"].all()
    torch.testing.assert_close(features.norm(dim=1), torch.ones(64).double(), rtol=0, atol=2e-3)
    unit = torch.nn.functional.normalize(features, dim=1)
    cosines = (unit @ unit.T).fill_diagonal_(-2)
    torch.testing.assert_close(
        cosines.gather(1, table), cosines.topk(2, dim=1).values, rtol=0, atol=1e-6
    )
    with Image.open(whole / "neighbors.png") as sheet:
        assert sheet.width > 3 * 96
        assert sheet.height > 10 * 96


def test_the_bank_has_the_features_of_the_first_view_by_the_number_of_the_image(
    tmp_path: Path,
) -> None:
    """With a rate of 0 the weights stay, and what the last epoch saw can be made again."""
    changes: dict[str, Any] = {**TINY, "out": str(tmp_path / "run"), "crops": KNN, "limit": 80}
    changes |= {"optim": {"lr": 0.0, "weight_decay": 0.0}}
    run = wcl.pretrain("digits", **changes)
    config = settings("digits", changes, method_settings)
    loader = Loader(limited(open_source("digits"), 80, 0), config.batch_size, config.seed, CPU)
    encoder = wcl.load(run).train()
    expected = torch.zeros(80, encoder.feature_dim)
    for epoch in range(2):
        for batch in loader.epoch(epoch, view_specs(config, 1)[:1]):
            with torch.no_grad():
                h = embed_views(encoder, batch.views)["h"][0]
            expected[batch.rows] = torch.nn.functional.normalize(h, dim=1)
    state = checkpoint(run)["neighbor_crops"]
    assert torch.equal(state["seen"], expected.any(dim=1))
    torch.testing.assert_close(state["features"].float(), expected, rtol=0, atol=2e-3)


def test_a_bank_of_plain_images_has_their_features_by_the_weights_after_the_epoch(
    tmp_path: Path,
) -> None:
    run = tiny_run(tmp_path / "run", crops={**KNN, "features": "plain"}, **WHOLE)
    first, *others = lines_of(run, "epoch")
    assert "neighbor_same_class" in first and all("neighbors_changed" in line for line in others)
    state = checkpoint(run)["neighbor_crops"]
    source = in_memory(limited(open_source("digits"), 64, 0))
    assert isinstance(source, ArraySource)
    expected = torch.nn.functional.normalize(wcl.load(run).embed(source.pixels), dim=1)
    torch.testing.assert_close(state["features"].float(), expected, rtol=0, atol=2e-3)
    assert state["seen"].all()  # those of an incomplete last batch too


@pytest.mark.parametrize("warmup", [2, 3])
def test_plain_features_are_computed_from_the_warm_up_on(warmup: int, tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", crops={**KNN, "features": "plain", "warmup": warmup}, **WHOLE)
    searched = ["neighbor_same_class" in line for line in lines_of(run, "epoch")]
    assert searched == [epoch >= warmup for epoch in (1, 2, 3)]


@pytest.mark.parametrize("steps", [3, 4, 7, 8, 11])
def test_a_run_with_plain_features_resumes_exactly(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crops = {**KNN, "features": "plain"}
    whole = tiny_run(tmp_path / "whole", crops=crops, **WHOLE)
    with stopped_after(steps, monkeypatch):
        tiny_run(tmp_path / "parts", crops=crops, **WHOLE)
    tiny_run(tmp_path / "parts", resume=True, **WHOLE)
    assert_same_run(whole, tmp_path / "parts")


@pytest.mark.parametrize(
    ("steps", "banks"),
    [
        (2, ("memory", "memory")),
        (4, ("disk", "disk")),
        (6, ("memory", "disk")),
        (8, ("disk", "memory")),
        (11, ("disk", "disk")),
    ],
)
def test_a_run_of_crops_resumes_exactly_from_any_step_and_with_any_bank(
    steps: int,
    banks: tuple[str, str],
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = tmp_path / "parts"
    with stopped_after(steps, monkeypatch):
        tiny_run(parts, crops={**KNN, "bank": banks[0]}, **WHOLE)
    assert checkpoint(parts)["step"] == steps
    tiny_run(parts, crops={**KNN, "bank": banks[1], "cache": 7}, resume=True, **WHOLE)
    assert_same_run(whole, parts)
    assert (parts / "neighbors.png").read_bytes() == (whole / "neighbors.png").read_bytes()


def test_a_run_that_died_among_neighbors_goes_on_from_its_last_checkpoint(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a bank on disk has learned since then is forgotten."""
    parts, crops = tmp_path / "parts", {**KNN, "bank": "disk"}
    asked = iter(range(1, 10**6))

    def die_in_step_eleven(stop: StopRequest) -> bool:
        if next(asked) == 11:
            raise SystemExit(1)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "__bool__", die_in_step_eleven)
        with pytest.raises(SystemExit):
            tiny_run(parts, crops=crops, **WHOLE)
    assert checkpoint(parts)["step"] == 8
    tiny_run(parts, crops=crops, resume=True, **WHOLE)
    assert_same_run(whole, parts)


def test_photos_with_neighbors_resume_exactly_with_other_workers_cache_and_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps an epoch; one photo is large and turned, one cannot be read."""
    data = photo_folder(tmp_path / "data")
    save_jpeg(data / "cat" / "002.jpg", picture(5, 600, 800), orientation=6)
    (data / "dog" / "004.jpg").write_bytes(b"")
    common: dict[str, Any] = {"epochs": 3, "save_every": 2}
    crops = {**KNN, "scale": [0.1, 0.4]}
    whole = photo_run(
        data, tmp_path / "whole", num_workers=0, crops={**crops, "cache": 0}, **common
    )
    parts = tmp_path / "parts"
    with stopped_after(5, monkeypatch):
        photo_run(data, parts, num_workers=2, crops={**crops, "bank": "disk"}, **common)
    photo_run(data, parts, num_workers=1, crops={**crops, "cache": 1}, resume=True, **common)
    assert_same_run(whole, parts)
    assert metrics(whole)[-1]["skipped"] == 1
    state = checkpoint(whole)["neighbor_crops"]
    unreadable = (~state["seen"]).nonzero()[:, 0].tolist()
    assert [Path(open_source(str(data)).where(i)).name for i in unreadable] == ["004.jpg"]
    assert state["table"][unreadable[0]].tolist() == unreadable * 2
    assert int((state["table"] == unreadable[0]).sum()) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("count", 3), ("size", 20), ("warmup", 2), ("neighbors", False)]
)
def test_a_run_of_crops_is_not_resumed_with_others(name: str, value: Any, whole: Path) -> None:
    with pytest.raises(InputError, match=rf"crops\.{name}"):
        tiny_run(whole, crops={**KNN, name: value}, resume=True, **WHOLE)


def test_a_run_on_some_classes_sees_only_them(tmp_path: Path) -> None:
    crops = {**KNN, "bank": "disk"}
    run = tiny_run(tmp_path / "run", limit=0, classes=1, epochs=2, crops=crops)
    digits = open_source("digits")
    assert digits.labels is not None
    assert len(checkpoint(run)["neighbor_crops"]["seen"]) == int((digits.labels == 0).sum())
    assert lines_of(run, "epoch")[-1]["neighbor_same_class"] == 1


def test_the_knn_accuracy_of_a_run_on_some_classes_is_of_them(tmp_path: Path) -> None:
    log = {"knn_every": 1, "tensorboard": False}
    run = tiny_run(tmp_path / "run", limit=0, classes=3, epochs=1, log=log)
    expected = wcl.evaluate(run, "knn", "digits", classes=3).top1
    assert metrics(run)[-1]["knn_top1"] == expected


def test_crops_as_large_as_the_views_train(tmp_path: Path) -> None:
    run = tiny_run(
        tmp_path / "run", limit=32, batch_size=16, crops={**CROPS, "size": 32, "count": 1}
    )
    assert metrics(run)[-1].keys() >= ALL_LOSSES


def test_a_refused_bank_on_disk_leaves_nothing(tmp_path: Path) -> None:
    crops = {**CROPS, "count": 128, "bank": "disk"}
    with pytest.raises(InputError, match="at most 127 neighbors"):
        tiny_run(tmp_path / "run", crops=crops)
    assert list(tmp_path.iterdir()) == []
