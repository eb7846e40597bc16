"""RUN arguments: a pretrained model of timm in place of a run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

import wcl
from images import photo_folder, picture
from wcl.cli import run_command
from wcl.models.opening import open_encoder
from wcl.system.errors import InputError
from weight_files import backbone, weights_file

LITE = Path(__file__).parents[3] / "shared/data/weights/tf_efficientnet_lite0.safetensors"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WCL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext"])
@pytest.mark.parametrize("size", [96, 160])
def test_without_a_step_the_round_trip_changes_no_bit(
    name: str, size: int, cache: Path, tmp_path: Path
) -> None:
    file = weights_file(tmp_path / "weights.safetensors", name)
    run = f"timm:{name}:{size}@{file}"
    exported = wcl.export(run, "timm", tmp_path / "exported.safetensors")
    folder = wcl.export(run, "hub-folder", tmp_path / "hub")
    options: dict[str, Any] = {"img_size": size} if name == "test_vit" else {}
    original = timm.create_model(
        name,
        pretrained=True,
        pretrained_cfg_overlay={"file": str(file)},
        num_classes=0,
        **options,
    )
    again = timm.create_model(name, num_classes=0, checkpoint_path=exported, **options)
    from_folder = timm.create_model(f"local-dir:{folder}", pretrained=True)
    images = torch.randn(3, 3, size, size)
    with torch.no_grad():
        expected = original.eval()(images)
        assert again.eval()(images).equal(expected)
        assert from_folder.eval()(images).equal(expected)
        assert wcl.load(run).backbone(images).equal(expected)


@pytest.mark.skipif(not LITE.is_file(), reason=f"needs ../shared/data/weights/{LITE.name}")
def test_the_real_weights_make_the_round_trip(cache: Path, tmp_path: Path) -> None:
    name = "tf_efficientnet_lite0"
    exported = wcl.export(f"timm:{name}@{LITE}", "timm", tmp_path / "exported.safetensors")
    found = wcl.load(exported).description
    assert (found.image_size, found.mean, found.std) == (224, (0.5,) * 3, (0.5,) * 3)
    models = [
        timm.create_model(name, num_classes=0, checkpoint_path=file).eval()
        for file in (LITE, exported)
    ]
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        assert models[0](images).equal(models[1](images))


def test_the_encoder_says_where_its_weights_are_from(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    file = weights_file(tmp_path / "secret" / "mine.pth")
    encoder = open_encoder(f"timm:test_resnet@{file}")
    described = encoder.description
    assert (described.image_size, described.channels, described.heads) == (160, 3, ())
    assert described.weights == "mine.pth"
    assert described.weights_sha256 != described.sha256 != ""
    exported = wcl.export(f"timm:test_resnet@{file}", "timm", tmp_path / "exported.safetensors")
    images = torch.randint(256, (2, 3, 160, 160), dtype=torch.uint8)
    with torch.no_grad():
        model = timm.create_model("test_resnet", num_classes=0, checkpoint_path=exported)
        expected = model.eval()((images / 255 - 0.5) / 0.5)
    torch.testing.assert_close(encoder.embed(images), expected)
    folder = wcl.export(f"timm:test_resnet@{file}", "hub-folder", tmp_path / "hub")
    card = (folder / "README.md").read_text()
    assert described.weights_sha256 in card and "mine.pth" in card and "secret" not in card
    assert "without further training" in card
    again = wcl.load(folder).description
    assert (again.weights, again.weights_sha256) == ("mine.pth", described.weights_sha256)


def test_commands_take_a_model_in_place_of_a_run(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    photo_folder(tmp_path / "photos")
    picture(0).save("query.jpg")
    weights_file(tmp_path / "w.safetensors")
    run, data = "timm:test_resnet:32@w.safetensors", ["--data", "photos", "--num_workers", "0"]
    for words in (
        ["eval", "knn", run, *data],
        ["eval", "lowshot", run, *data, "--k", "1", "--draws", "1"],
        ["eval", "project", run, *data, "--against", "timm:test_resnet:64@w.safetensors"],
        ["embed", run, *data, "--out", "vectors.parquet"],
        ["search", run, *data, "--query", "query.jpg"],
        ["duplicates", run, *data],
        ["report", run, *data],
        ["export", run, "--to", "timm"],
    ):
        assert run_command(words) == 0, words
    home = open_encoder(run).home
    assert home is not None and home.parent == cache / "pretrained"
    assert {"features", "lowshot", "export", "report.html"} <= {p.name for p in home.iterdir()}
    page = (home / "report.html").read_text()
    assert "A pretrained model as it is" in page
    assert wcl.evaluate(run, data="photos", num_workers=0).top1 > 0
    assert capsys.readouterr().out


def test_other_weights_have_another_cache(cache: Path, tmp_path: Path) -> None:
    file = weights_file(tmp_path / "w.safetensors")
    run = f"timm:test_resnet:32@{file}"
    first = open_encoder(run).home
    assert open_encoder(run).home == first
    assert open_encoder(f"timm:test_resnet:64@{file}").home != first
    other = timm.create_model("test_resnet", num_classes=0).state_dict()
    torch.save(other, file.with_suffix(".pth"))
    assert open_encoder(f"timm:test_resnet:32@{file.with_suffix('.pth')}").home != first


def test_a_cache_that_cannot_be_written_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WCL_CACHE", str(tmp_path / "file" / "cache"))
    data = photo_folder(tmp_path / "photos")
    run = f"timm:test_resnet:32@{weights_file(tmp_path / 'w.safetensors')}"
    assert 0 <= wcl.evaluate(run, data=data, num_workers=0).top1 <= 1
    with pytest.raises(OSError, match="cache"):
        wcl.export(run, "timm")


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("timm:", "write timm:NAME"),
        ("timm:test_resnet@", "write timm:NAME"),
        ("timm:test_resnet:0", "write timm:NAME"),
        ("timm:test_resnet:big@w.safetensors", "write timm:NAME"),
        ("timm:test_resnet:99999", "write timm:NAME"),
        ("timm:test_resnet@nowhere", "there is no nowhere"),
        ("timm:resnt18@w.safetensors", "did you mean resnet18"),
        ("timm:resnet18.nothing@w.safetensors", "nothing"),
        ("timm:test_vit@w.safetensors", "does not fit test_vit"),
        ("timm:test_convnext:2@w.safetensors", "timm:test_convnext: .*2×2 pixels .*; use 32"),
        ("timm:test_resnet@.", "no encoder.safetensors there"),
        ("w.safetensors", "timm:NAME@FILE"),
    ],
)
def test_a_mistake_is_one_line(
    run: str,
    expected: str,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    weights_file(tmp_path / "w.safetensors")
    assert run_command(["eval", "knn", run, "--data", "digits"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    with pytest.raises(InputError, match=expected):
        raise InputError(line)


def in_new_process(words: list[str], hub: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with no network and this cache of the hub."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(hub)}
    command = [sys.executable, "-m", "wcl", *words]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_timm_gets_the_weights_and_without_a_network_says_so(cache: Path, tmp_path: Path) -> None:
    hub, words = tmp_path / "hub", ["export", "timm:test_resnet:32", "--to", "timm"]
    failed = in_new_process([*words, "--out", str(tmp_path / "a.safetensors")], hub)
    (line,) = failed.stderr.strip().splitlines()
    assert failed.returncode == 2
    assert "the weights of test_resnet cannot be downloaded" in line and "give a file" in line

    # What the hub's client leaves behind after a download.
    repository = hub / "hub" / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / "0123"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    snapshot.mkdir(parents=True)
    weights_file(snapshot / "model.safetensors")
    done = in_new_process([*words, "--out", str(tmp_path / "a.safetensors")], hub)
    assert (done.returncode, done.stderr) == (0, "")
    encoder = wcl.load(tmp_path / "a.safetensors")
    assert encoder.description.weights == "timm:test_resnet.r160_in1k"
    assert encoder.description.weights_sha256 == encoder.description.sha256
    weights = backbone()
    assert all(
        tensor.equal(weights[name]) for name, tensor in encoder.backbone.state_dict().items()
    )
    shutil.rmtree(hub)
