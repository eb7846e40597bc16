"""Runs that start from pretrained weights."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import load_file

import wcl
from images import photo_folder
from runs import TINY, assert_same_run, metrics, stopped_after, tiny_run, weights
from wcl.cli import run_command
from wcl.config.layering import settings
from wcl.data import limited, open_source, with_format
from wcl.evaluation.features import pixel_batches
from wcl.evaluation.references import pretrained_encoder
from wcl.methods import method_settings
from wcl.models.pretrained import input_settings
from wcl.system.errors import InputError
from wcl.training.provenance import read_sessions
from weight_files import backbone, weights_file

HALF = [0.5, 0.5, 0.5]


def from_weights(out: Path, file: Path | str, **changes: Any) -> Path:
    """A tiny run on gray digits that starts from weights for color images."""
    model = {**TINY["model"], "backbone": "test_resnet", "weights": str(file)}
    return tiny_run(out, **{"model": model, "image_size": 32, **changes})


def test_frozen_batch_norm_keeps_its_statistics(file: Path, tmp_path: Path) -> None:
    """At rate 0, with and without: k-NN in between switches the modes of the network."""
    model = {**TINY["model"], "backbone": "test_resnet", "weights": str(file)}
    for frozen in (True, False):
        run = tiny_run(
            tmp_path / f"{frozen}",
            model={**model, "freeze_batch_norm": frozen},
            image_size=32,
            optim={"lr": 0.0},
            log={"knn_every": 1},
        )
        found = weights(run)
        same = [found[f"backbone.{name}"].equal(tensor) for name, tensor in backbone().items()]
        assert all(same) == frozen


def test_targets_of_mean_shift_come_from_plain_images_and_the_untouched_encoder(
    file: Path, tmp_path: Path
) -> None:
    run = from_weights(tmp_path / "run", file, epochs=1, method="meanshift", loss={"neighbors": 3})
    untouched = pretrained_encoder(wcl.load(run))
    assert untouched is not None
    source = with_format(limited(open_source("digits"), 128, 0), 3, ())
    pixels = torch.cat([batch for batch, _ in pixel_batches(untouched, source)])
    f = F.normalize(untouched.embed(pixels), dim=1)
    near = (f @ f.T).fill_diagonal_(-1).topk(3).indices
    expected = F.normalize(f + 3 * f[near].mean(dim=1), dim=1)
    target = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["method"]["target"]
    torch.testing.assert_close(target.float(), expected, rtol=0, atol=2e-3)


def settings_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights_file(tmp_path_factory.mktemp("published") / "mine.safetensors")


def test_a_run_starts_from_the_weights_and_records_them(file: Path, tmp_path: Path) -> None:
    run = from_weights(tmp_path / "run", file, epochs=1, optim={"lr": 0.0}, log={"knn_every": 1})
    found = weights(run)
    for name, tensor in backbone().items():  # nothing but running statistics moves at rate 0
        if "running" not in name and "num_batches" not in name:
            assert found[f"backbone.{name}"].equal(tensor), name
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    config = settings_of(run)
    assert (config["model"]["weights"], config["model"]["weights_sha256"]) == (str(file), sha256)
    assert (config["augment"]["mean"], config["augment"]["std"]) == (HALF, HALF)
    (session,) = read_sessions(run / "provenance.json")
    assert session.weights == {"name": "mine.safetensors", "sha256": sha256}
    described = wcl.load(run).description
    assert (described.weights, described.weights_sha256) == ("mine.safetensors", sha256)
    assert (described.channels, described.mean) == (3, tuple(HALF))
    assert str(file.parent) not in json.dumps(wcl.load(run).described())
    card = (wcl.export(run, "hub-folder") / "README.md").read_text()
    assert "starting from the weights mine.safetensors" in card and sha256 in card
    assert str(file.parent) not in card


def test_the_untouched_encoder_is_measured_before_the_first_step(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WCL_CACHE", str(tmp_path / "cache"))
    run = from_weights(tmp_path / "run", file, epochs=1, log={"knn_every": 1})
    first, *_, last = metrics(run)
    untouched = wcl.evaluate(f"timm:test_resnet:32@{file}", data="digits").top1
    close = pytest.approx(untouched, abs=0.01)  # the memory format differs, and so does rounding
    assert first == {"kind": "start", "step": 0, "epoch": 0, "knn_top1": close}
    assert last["kind"] == "epoch" and "knn_top1" in last
    silent = from_weights(tmp_path / "silent", file, epochs=1)
    assert metrics(silent)[0]["kind"] == "step"


def test_resuming_does_not_need_the_weights(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(file.read_bytes())
    whole = from_weights(tmp_path / "whole", copy, log={"knn_every": 1, "every": 2})
    with stopped_after(3, monkeypatch):
        from_weights(tmp_path / "run", copy, log={"knn_every": 1, "every": 2})
    copy.unlink()
    run = wcl.pretrain(out=str(tmp_path / "run"), resume=True)
    assert_same_run(run, whole)
    assert wcl.load(run).description == wcl.load(whole).description
    assert [one.weights["name"] for one in read_sessions(run / "provenance.json")] == [
        copy.name
    ] * 2


def test_a_run_without_a_checkpoint_starts_from_the_weights_again(
    file: Path, tmp_path: Path
) -> None:
    whole = from_weights(tmp_path / "whole", file, log={"knn_every": 1})
    run = from_weights(tmp_path / "run", file, log={"knn_every": 1})
    for name in ("last.ckpt", "previous.ckpt"):
        (run / "checkpoints" / name).unlink(missing_ok=True)
    wcl.pretrain(out=str(run), resume=True)
    assert_same_run(run, whole)


def test_every_process_loads_the_weights(file: Path, tmp_path: Path) -> None:
    words = "pretrain digits --limit 64 --batch_size 32 --epochs 1 --precision 64-true"
    words += " --log.tensorboard false --model.backbone test_resnet --image_size 32"
    words += f" --model.head_hidden_dim 32 --threads 1 --timeout_minutes 1 --model.weights {file}"
    for devices in ("1", "2"):
        options = ["--devices", devices, "--out", str(tmp_path / devices)]
        subprocess.run([sys.executable, "-m", "wcl", *words.split(), *options], check=True)
    first, second = (weights(tmp_path / devices) for devices in ("1", "2"))
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-5, atol=1e-6)


def test_other_weights_of_a_recorded_hash_are_refused(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(file.read_bytes())
    run = from_weights(tmp_path / "run", copy, epochs=1)
    config = str(run / "config.yaml")
    weights_file(copy, "test_resnet", num_classes=3)
    words = ["pretrain", "--config", config, "--out", str(tmp_path / "again")]
    assert run_command(words) == 2
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("method", ["byol", "moco", "swav", "simclr"])
def test_every_method_starts_from_them(method: str, file: Path, tmp_path: Path) -> None:
    run = from_weights(tmp_path / method, file, epochs=1, method=method, optim={"lr": 0.0})
    assert weights(run)["backbone.conv1.0.weight"].equal(backbone()["conv1.0.weight"])


def test_a_run_starts_from_a_run(tmp_path: Path) -> None:
    first = tiny_run(tmp_path / "first", epochs=1)
    model = {**TINY["model"], "weights": str(first)}
    changes = {"data": str(photo_folder(tmp_path / "photos")), "optim": {"lr": 0.0}, "limit": 0}
    second = tiny_run(tmp_path / "second", model=model, epochs=1, batch_size=8, **changes)
    kernel = load_file(first / "encoder.safetensors")["backbone.0.weight"]
    assert weights(second)["backbone.0.weight"].equal(kernel)
    described = wcl.load(second).description  # photos in gray, as the first run saw digits
    assert (described.channels, described.mean, described.weights) == (1, (0.3,), "first")


def resolved(recipe: str, files: list[Path], **changes: Any) -> Any:
    model = {"backbone": "test_resnet"} | changes.pop("model", {})
    given = {"model": model, **changes}
    return settings(recipe, given, method_settings, False, files, input_settings)


def test_size_mean_and_std_follow_the_weights_unless_the_user_sets_them(
    file: Path, tmp_path: Path
) -> None:
    model = {"weights": str(file)}
    for recipe in ("digits", "cifar10", "folder", ""):
        found = resolved(recipe, [], model=model)
        assert found.image_size == 160 and found.augment.mean == found.augment.std == (0.5,) * 3
    found = resolved("cifar10", [], model=model, image_size=96)
    assert found.image_size == 96 and found.augment.mean == (0.5,) * 3
    found = resolved("cifar10", [], model=model, augment={"mean": [0.1, 0.2, 0.3]})
    assert found.image_size == 160 and found.augment.mean == (0.1, 0.2, 0.3)
    mine = tmp_path / "mine.yaml"
    mine.write_text("image_size: 64\n")
    assert resolved("cifar10", [mine], model=model).image_size == 64
    assert resolved("cifar10", []).image_size == 32
    vit = resolved("folder", [], model={"weights": "timm", "backbone": "tf_efficientnet_lite0"})
    assert (vit.image_size, vit.augment.mean) == (224, (0.5,) * 3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"augment": {"mean": [0.5]}}, r"augment__mean: 1 numbers, but the weights take 3"),
        ({"model": {"weights": "nowhere"}}, r"model__weights: nowhere: no such weights"),
        ({"model": {"backbone": "resnt18"}}, r"model__backbone: .*did you mean resnet18"),
        ({"model": {"backbone": "test_vit"}}, r"model__weights: .*does not fit.*weights_partial"),
        ({"model": {"weights_sha256": "0"}}, r"model__weights: .*SHA-256"),
        ({"data": "digits", "image_size": 1}, r"image_size: test_convnext cannot take"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(
    changes: dict[str, Any], expected: str, file: Path, tmp_path: Path
) -> None:
    model = {"backbone": "test_resnet", "weights": str(file)} | changes.get("model", {})
    if "image_size" in changes:
        model |= {
            "backbone": "test_convnext",
            "weights": str(weights_file(tmp_path / "v.pth", "test_convnext")),
        }
    with pytest.raises(InputError, match=expected):
        tiny_run(tmp_path / "run", **{"image_size": 32, **changes, "model": model})
    assert not (tmp_path / "run").exists()
