"""Exports: every format computes what the encoder computes, and tells nothing it should not."""

import dataclasses
import errno
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import wcl
from images import photo_folder, picture
from runs import photo_run
from wcl.cli import run_command
from wcl.config import ModelConfig
from wcl.exporters import FORMATS, traced
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError, RunError

Stem = Literal["native", "cifar", "stride2"]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SIZE = 32


def pixels(count: int, channels: int = 3, size: int = SIZE) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(256, (count, channels, size, size), dtype=torch.uint8, generator=generator)


def saved(
    folder: Path, backbone: str = "resnet18", stem: Stem = "native", channels: int = 3
) -> Path:
    """A folder with an encoder whose norm layers have seen data, trained on somebody's photos."""
    torch.manual_seed(0)
    model = ModelConfig(backbone, stem, head_hidden_dim=16, head_out_dim=8)
    mean, std = MEAN[:channels], STD[:channels]
    data = "/home/anna/secret place/birds"
    encoder = Encoder(Description(model, ("g", "phi"), channels, SIZE, mean, std, "wcl", 7, data))
    encoder.train()
    encoder(encoder.normalize(pixels(6, channels)))
    folder.mkdir()
    encoder.save(folder / "encoder.safetensors")
    return folder


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ResNet-18 as timm and torchvision know it, and all its exports."""
    run = saved(tmp_path_factory.mktemp("exports") / "resnet")
    for name in FORMATS:
        wcl.export(run, name)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run on a folder of photos: a network of ours, with a stem of ours."""
    place = tmp_path_factory.mktemp("exports")
    return photo_run(photo_folder(place / "birds"), place / "run", epochs=1)


def exported(run: Path, to: str) -> Path:
    return run / "export" / FORMATS[to].name


def close(found: Tensor, expected: Tensor) -> None:
    """Equal but for the order in which a sum of float32 is taken."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a path, and every file inside an archive."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            yield file.name, file.read_bytes()
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    yield from ((name, archive.read(name)) for name in archive.namelist())


@pytest.mark.parametrize("to", FORMATS)
def test_every_format_computes_what_the_encoder_computes(
    to: str, resnet: Path, tmp_path: Path
) -> None:
    original, again = wcl.load(resnet), wcl.load(exported(resnet, to))
    assert again.feature_dim == original.feature_dim == 512
    for count in (1, 2, 7):
        close(again.embed(pixels(count)), original.embed(pixels(count)))
    close(again.embed(pixels(7), batch_size=3), original.embed(pixels(7)))
    photo = picture(0, 90, 130)
    photo.save(tmp_path / "photo.png")
    close(again.embed(photo), original.embed(photo))
    close(again.embed([tmp_path / "photo.png"]), original.embed(photo))
    assert again.embed([]).shape == (0, 512)


@pytest.mark.parametrize("to", FORMATS)
def test_every_format_says_where_it_comes_from_and_where_from_no_further(
    to: str, resnet: Path
) -> None:
    path = exported(resnet, to)
    found = wcl.load(path).description
    assert (found.method, found.epoch, found.data) == ("wcl", 7, "birds")
    assert (found.mean, found.std, found.image_size, found.channels) == (MEAN, STD, SIZE, 3)
    assert found.version == wcl.__version__
    assert found.heads == (("g", "phi") if to == "safetensors" else ())
    assert found.sha256 == wcl.load(resnet).description.sha256 != ""
    places = (b"secret place", b"/home/", str(resnet.parent).encode(), b"site-packages", b"/src/")
    for name, content in contents(path):
        assert not [place for place in places if place in content], name


def test_metadata_are_in_the_files_themselves(resnet: Path) -> None:
    import onnx

    with safe_open(exported(resnet, "timm"), framework="pt") as opened:
        timm_s = json.loads(opened.metadata()["wcl-backbone-1"])
    extra = {"wcl-export-1": ""}
    torch.jit.load(exported(resnet, "torchscript"), _extra_files=extra)
    onnx_s, checksum = onnx.load(exported(resnet, "onnx")).metadata_props
    assert (onnx_s.key, checksum.key) == ("wcl-export-1", "sha256")
    for found in (timm_s, json.loads(extra["wcl-export-1"]), json.loads(onnx_s.value)):
        assert found["data"] == "birds"
        assert found["mean"] == list(MEAN)
        assert re.fullmatch("[0-9a-f]{64}", found["sha256"])


def test_plain_timm_loads_the_weights_strictly(resnet: Path) -> None:
    import timm

    file = exported(resnet, "timm")
    plain = timm.create_model("resnet18", num_classes=0)
    plain.load_state_dict(load_file(file), strict=True)
    encoder = wcl.models.encoder.load(resnet)
    images = encoder.normalize(pixels(3))
    with torch.no_grad():
        assert plain.eval()(images).equal(encoder(images)["h"])
        by_file = timm.create_model("resnet18", num_classes=0, checkpoint_path=file)
        assert by_file.eval()(images).equal(encoder(images)["h"])


def test_plain_torchvision_loads_the_weights_strictly(resnet: Path) -> None:
    from torchvision.models import resnet18

    plain = resnet18()
    plain.fc = torch.nn.Identity()
    plain.load_state_dict(load_file(exported(resnet, "timm")), strict=True)
    encoder = wcl.models.encoder.load(resnet)
    images = encoder.normalize(pixels(3))
    with torch.no_grad():
        close(plain.eval()(images), encoder(images)["h"])


def test_torch_and_onnxruntime_run_the_files_on_images_between_0_and_1(resnet: Path) -> None:
    import onnxruntime

    script = torch.jit.load(exported(resnet, "torchscript"))
    session = onnxruntime.InferenceSession(exported(resnet, "onnx"))
    for count in (1, 4):
        images = pixels(count).float() / 255
        expected = wcl.load(resnet).embed(pixels(count))
        with torch.no_grad():
            close(script(images), expected)
        (found,) = session.run(None, {"images": images.numpy()})
        close(torch.from_numpy(found), expected)
    assert [place.name for place in session.get_outputs()] == ["features"]


def test_timm_opens_the_hub_folder_and_prepares_photos_as_we_do(resnet: Path) -> None:
    import timm

    folder = exported(resnet, "hub-folder")
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    data: Any = timm.data
    encoder = wcl.models.encoder.load(resnet)
    with torch.no_grad():
        close(model(encoder.normalize(pixels(3))), encoder.embed(pixels(3)))
        transform = data.create_transform(**data.resolve_model_data_config(model))
        photo = picture(1, 90, 130)
        close(model(transform(photo)[None]), encoder.embed(photo))
    classifier: Any = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=10)
    assert classifier.conv1.weight.equal(model.conv1.weight)
    assert classifier(torch.zeros(2, 3, SIZE, SIZE)).shape == (2, 10)
    config = json.loads((folder / "config.json").read_text())
    assert (config["architecture"], config["num_features"]) == ("resnet18", 512)
    assert not (folder / "encoder.safetensors").exists()


@pytest.mark.parametrize(
    ("backbone", "channels"), [("vit_tiny_patch16_224", 3), ("mobilenetv3_small_050", 1)]
)
def test_other_backbones_of_timm_are_exported_too(
    backbone: str, channels: int, tmp_path: Path
) -> None:
    import timm

    run = saved(tmp_path / "run", backbone, channels=channels)
    encoder = wcl.models.encoder.load(run)
    expected = encoder.embed(pixels(3, channels))
    for to in ("torchscript", "onnx", "hub-folder"):
        close(wcl.load(wcl.export(run, to)).embed(pixels(3, channels)), expected)
    model = timm.create_model(f"local-dir:{exported(run, 'hub-folder')}", pretrained=True).eval()
    images = encoder.normalize(pixels(3, channels))
    with torch.no_grad():
        close(model(images), encoder(images)["h"])


@pytest.mark.parametrize(
    ("backbone", "stem"),
    [("resnet18d", "cifar"), ("resnet_small", "native"), ("conv_tiny", "native")],
)
def test_what_timm_cannot_build_it_does_not_build_wrongly(
    backbone: str, stem: Stem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import timm

    run = saved(tmp_path / "run", backbone, stem)
    folder = wcl.export(run, "hub-folder")
    assert "only wcl.load opens it" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="Unknown model"):
        timm.create_model(f"local-dir:{folder}", pretrained=True)
    card = (folder / "README.md").read_text()
    assert "wcl.load" in card
    assert "timm.create_model" not in card
    again = wcl.models.encoder.load(folder)
    assert again.home is None  # no features are kept in a folder for others
    assert again.description.heads == ("g", "phi")
    assert again.embed(pixels(2)).equal(wcl.load(run).embed(pixels(2)))


def test_the_model_card_says_how_it_was_made(run: Path, tmp_path: Path) -> None:
    folder = wcl.export(run, "hub-folder", tmp_path / "model-v1.0")
    card = (folder / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["pipeline_tag"] == "image-feature-extraction"
    assert "pretrained on birds" in body
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"Metrics of epoch {last['epoch']}" in body
    assert f"| rankme | {last['rankme']:.4g} |" in body
    settings = yaml.safe_load(body.partition("```yaml\n")[2].partition("```")[0])
    whole = yaml.safe_load((run / "config.yaml").read_text())
    assert settings["optim"] == whole["optim"]
    assert "part of the data" not in body
    assert {"data", "out", "num_workers"} & settings.keys() == set()


def test_the_model_card_has_the_metrics_of_its_weights(run: Path, tmp_path: Path) -> None:
    """Of a run that went on after the encoder was written."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    last = json.loads((copy / "metrics.jsonl").read_text().splitlines()[-1])
    with (copy / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**last, "epoch": last["epoch"] + 1, "rankme": 98765.4}) + "\n")
    card = (wcl.export(copy, "hub-folder", tmp_path / "hub") / "README.md").read_text()
    assert f"| rankme | {last['rankme']:.4g} |" in card and "9.877e+04" not in card


def test_the_model_card_says_what_part_of_the_data_was_used(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "birds", ("crow", "gull", "wren"))
    (data / "crow" / "000.jpg").write_bytes(b"")
    changes: dict[str, Any] = {"crow": {}, "some": {"limit": 17, "classes": 2}}
    cards = {}
    for name, settings in changes.items():
        run = photo_run(data, tmp_path / name, epochs=1, **settings)
        cards[name] = (wcl.export(run, "hub-folder") / "README.md").read_text()
        (data / "crow" / "000.jpg").write_bytes((data / "crow" / "001.jpg").read_bytes())
    start = "Trained on part of the data: "
    assert start + "without 1 unreadable image.\n" in cards["crow"]
    some = "only the first 2 classes, in the order of their names; at most 17 images, drawn at"
    assert start + some in cards["some"]
    assert "unreadable" not in cards["some"]


def test_the_model_card_has_the_results_of_these_weights_alone(run: Path, tmp_path: Path) -> None:
    sha256 = wcl.load(run).description.sha256
    row = {"protocol": "knn", "setting": "k = 9", "measure": "top1", "encoder": 0.5}
    row |= {"untrained": 0.25, "n_train": 20, "n_test": 4}
    found = {"data": "/home/anna/secret place/birds", "rows": [row]}
    file = run / "evaluation.json"
    cards = {}
    for name, content in {
        "these": json.dumps({**found, "sha256": sha256}),
        "others": json.dumps({**found, "sha256": "0" * 64}),
    }.items():
        file.write_text(content)
        cards[name] = (wcl.export(run, "hub-folder", tmp_path / name) / "README.md").read_text()
    file.unlink()
    assert "## Results on birds" in cards["these"]
    assert "| knn | k = 9 | top1 | 0.500 | 0.250 | 20 | 4 |" in cards["these"]
    assert "secret place" not in cards["these"]
    assert "## Results" not in cards["others"]


def test_names_in_the_model_card_stay_text(run: Path, tmp_path: Path) -> None:
    import html

    encoder = wcl.models.encoder.load(run)
    name = "<img src=x>\n# *birds* [x](y) `a_b` &amp; \\"
    encoder.description = dataclasses.replace(
        encoder.description, data=name, method=name, version=name
    )
    place = tmp_path / "run"
    place.mkdir()
    encoder.save(place / "encoder.safetensors")
    row = {"protocol": "knn", "setting": "k = 9", "measure": "top1", "encoder": 0.5}
    row |= {"untrained": 0.25, "n_train": 20, "n_test": 4}
    sha256 = wcl.load(place).description.sha256
    found = {"data": name.replace("\\", ""), "rows": [row], "sha256": sha256}
    (place / "evaluation.json").write_text(json.dumps(found))
    card = (wcl.export(place, "hub-folder") / "README.md").read_text()
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert [line.split()[0] for line in headings] == ["#", "##", "##"]
    assert "<" not in card and "*birds*" not in card.replace("\\*", "")
    shown = html.unescape(re.sub(r"\\([!-/:-@[-`{-~])", r"\1", headings[-1]))  # as Markdown does
    assert shown == "## Results on <img src=x>\\n# *birds* [x](y) `a_b` &amp; "


def test_a_card_of_an_encoder_for_timm_is_tagged_so(resnet: Path) -> None:
    card = (exported(resnet, "hub-folder") / "README.md").read_text()
    front: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    assert front["library_name"] == "timm"
    assert 'timm.create_model("hf-hub:' in card


def test_the_python_that_exports_print_runs_as_printed(
    resnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture(0).save(tmp_path / "photo.jpg")
    place = tmp_path / "anna's exports"
    place.mkdir()
    script = []
    for to, form in FORMATS.items():
        wcl.export(resnet, to, place / form.name)
        script += capsys.readouterr().out.partition("wrote ")[2].splitlines()[1:]
    for opened in ("create_model('resnet18'", "local-dir:", "jit.load(", "InferenceSession("):
        assert sum(opened in line for line in script) == 1
    subprocess.run([sys.executable, "-c", "\n".join(script)], cwd=tmp_path, check=True)


def test_the_command_leaves_the_run_as_it_was_and_overwrites_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(contents(run))
    for to in FORMATS:
        assert run_command(["export", str(run), "--to", to]) == 0
        printed = capsys.readouterr().out
        assert f"wrote {exported(run, to)}: " in printed
        assert "wcl.load(" in printed
        assert ("largest difference" in printed) == (to in ("torchscript", "onnx"))
    written = dict(contents(run / "export"))
    for name, content in written.items():  # nor does any tell where the run lies
        assert str(run.parent).encode() not in content, name
    for to in FORMATS:
        for out in ([], ["--out", str(exported(run, to))]):
            assert run_command(["export", str(run), "--to", to, *out]) == 2
            complaint = capsys.readouterr().err
            assert "exists already" in complaint
            assert complaint.count("\n") == 1
    assert dict(contents(run / "export")) == written
    after = {name: content for name, content in contents(run) if name not in written}
    assert after == {name: content for name, content in before.items() if name not in written}
    assert sorted(path.name for path in (run / "export").iterdir()) == sorted(
        form.name for form in FORMATS.values()
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "missing: --to; usage: wcl export"),
        (["--to", "onx"], "--to: onx is not one of timm"),
        (["--to", "onnx", "--out", "x.pt"], "--out: x.pt must be a .onnx file"),
        (["--to", "timm", "--out", "nowhere/x.safetensors"], "in a folder that exists"),
        (["--to", "hub-folder", "--out", "nowhere/x"], "must be a new folder in a folder that"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    words: list[str],
    says: str,
    resnet: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["export", str(resnet), *words]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_onnx_one_line_says_what_to_install(
    package: str, resnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs {package}; pip install 'wcl-torch\[onnx\]'"):
        wcl.export(resnet, "onnx", tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []
    if package == "onnxruntime":
        with pytest.raises(InputError, match="needs onnxruntime; pip install"):
            wcl.load(exported(resnet, "onnx"))


def test_an_export_that_computes_something_else_is_not_written(
    resnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when tracing misses a choice that depends on the images."""

    def other(network: traced.FromPixels, images: Tensor) -> Tensor:
        factor = 1.0 if bool(images.sum() > 0) else 2.0
        return factor * torch.as_tensor(network.backbone((images - network.mean) / network.std))

    monkeypatch.setattr(traced.FromPixels, "forward", other)
    for to in ("torchscript", "onnx"):
        with pytest.raises(RunError, match="in a batch of 1, features differ"):
            wcl.export(resnet, to, tmp_path / FORMATS[to].name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_run", [True, False])
def test_an_export_that_fails_half_way_leaves_nothing(
    in_run: bool, resnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "encoder.safetensors").write_bytes((resnet / "encoder.safetensors").read_bytes())
    before = set(tmp_path.rglob("*"))
    path = run / "export" / "hub" if in_run else tmp_path / "hub"

    def full_disk(self: Path, *_: Any, **__: Any) -> None:
        assert (self.parent / "model.safetensors").exists() and not path.exists()
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left") as failure:
        wcl.export(run, "hub-folder", "" if in_run else path)
    assert failure.value.filename == str(path)
    assert set(tmp_path.rglob("*")) == before
    monkeypatch.undo()
    assert wcl.export(run, "hub-folder", "" if in_run else path) == path
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_tensors_of_another_kind_are_refused_in_one_line(to: str, resnet: Path) -> None:
    opened = wcl.load(exported(resnet, to))
    with pytest.raises(InputError, match=r"must be \(N, 3, 32, 32\), not \(2, 3, 48, 48\)"):
        opened.embed(pixels(2, size=48))
    with pytest.raises(ValueError, match="0"):
        opened.embed(torch.full((2, 3, SIZE, SIZE), 2.0))  # floats are from 0 to 1
    with pytest.raises(ValueError, match=r"\(N, 3, height, width\)"):
        opened.embed(pixels(2, channels=1))


def flipped(content: bytes) -> bytes:
    """One bit in the middle, where the weights are."""
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 0x40
    return bytes(changed)


@pytest.mark.parametrize("to", ["timm", "safetensors", "torchscript", "onnx"])
def test_damaged_and_foreign_files_are_refused_in_one_line(
    to: str, resnet: Path, tmp_path: Path
) -> None:
    whole, file = exported(resnet, to).read_bytes(), tmp_path / FORMATS[to].name
    for content in (b"", b"nothing of the kind", whole[: len(whole) // 2], flipped(whole)):
        file.write_bytes(content)
        with pytest.raises(InputError) as refused:
            wcl.load(file)
        assert str(file) in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_a_single_bit_anywhere_is_noticed(to: str, resnet: Path, tmp_path: Path) -> None:
    whole, file = exported(resnet, to).read_bytes(), tmp_path / FORMATS[to].name
    places = [0, 100, len(whole) // 3, len(whole) - 500, len(whole) - 64, len(whole) - 1]
    places += [match.start() for match in re.finditer(rb"wcl-export-1|\"mean\"|sha256", whole)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(InputError, match=r"damaged|not an encoder that wcl exported"):
            wcl.load(file)
    file.write_bytes(whole)
    assert wcl.load(file).feature_dim == 512


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_what_needs_weights_asks_for_the_run(
    to: str, resnet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = exported(resnet, to)
    assert run_command(["eval", "linear", str(file), "--data", "digits"]) == 2
    complaint = capsys.readouterr().err
    assert f"{file}: the weights are needed" in complaint and "give the run" in complaint
    assert complaint.count("\n") == 1


def test_an_opened_export_is_printed_on_one_line(resnet: Path) -> None:
    found = repr(wcl.load(exported(resnet, "onnx")))
    assert found == "ExportedEncoder(resnet18, 512 features, size 32, wcl, epoch 7)"


@pytest.mark.parametrize("to", ["onnx", "hub-folder"])
def test_files_and_folders_in_each_others_place_are_named(
    to: str, resnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "encoder.safetensors").write_bytes((resnet / "encoder.safetensors").read_bytes())
    suffix = Path(FORMATS[to].name).suffix
    (tmp_path / f"link{suffix}").symlink_to(tmp_path / "unmounted")
    says = {
        f"{run}/encoder.safetensors/x{suffix}": "in a folder that exists",
        f"{tmp_path}/{'x' * 300}{suffix}": "too long for a file name",
        f"{tmp_path}/link{suffix}": "a broken link",
    }
    for out, complaint in says.items():
        assert run_command(["export", str(run), "--to", to, "--out", out]) == 2
        printed = capsys.readouterr().err
        assert complaint in printed
        assert printed.count("\n") == 1
    assert (tmp_path / f"link{suffix}").is_symlink()
    assert not (tmp_path / "unmounted").exists()


def test_files_that_others_wrote_are_not_opened(tmp_path: Path) -> None:
    import onnx

    class Trap:
        """What unpickling would run."""

        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    torch.save(Trap(), tmp_path / "pickled.pt")
    torch.jit.save(torch.jit.script(torch.nn.Identity()), tmp_path / "script.pt")
    save_file({"weight": torch.zeros(2)}, tmp_path / "weights.safetensors")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Abs", ["x"], ["y"])],
        "g",
        [value],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "x.onnx")
    for name in ("pickled.pt", "script.pt", "weights.safetensors", "x.onnx"):
        with pytest.raises(InputError, match=r"but not an encoder .*wcl"):
            wcl.load(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_an_export_can_be_exported_and_evaluated(resnet: Path, tmp_path: Path) -> None:
    folder = exported(resnet, "hub-folder")
    file = wcl.export(folder, "onnx", tmp_path / "again.onnx")
    close(wcl.load(file).embed(pixels(2)), wcl.load(resnet).embed(pixels(2)))
    data = photo_folder(tmp_path / "data", each=5)
    names = {path.name for path in folder.iterdir()}
    assert wcl.evaluate(folder, "knn", data, num_workers=0).n_test == 2
    assert {path.name for path in folder.iterdir()} == names
