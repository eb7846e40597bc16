"""Pretrained weights: loaded completely, from any of their places, or refused in one line."""

import hashlib
import json
import os
import pickle
import re
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from runs import tiny_run
from wcl.config import ModelConfig
from wcl.models.backbones import build_backbone
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.models.pretrained import InputFormat, input_format, load_weights, origin
from wcl.system.errors import InputError
from weight_files import backbone, trained_model, weights_file

SIZE = 64


def loaded(weights: Path | str, name: str = "test_resnet", size: int = SIZE, **model: Any) -> Any:
    """A backbone with the weights, and their SHA-256."""
    config = ModelConfig(name, weights=str(weights), **model)
    network = build_backbone(config, 3, size)
    return network.eval(), load_weights(network, config, 3, size)


def assert_same(network: nn.Module, expected: dict[str, Tensor]) -> None:
    found = network.state_dict()
    assert found.keys() == expected.keys()
    for name in found:
        assert found[name].equal(expected[name]), name


def as_training_checkpoint(path: Path) -> Path:
    """What a training program of timm saves."""
    weights = {f"module.{name}": value for name, value in trained_model().state_dict().items()}
    torch.save({"epoch": 3, "args": Namespace(lr=0.1), "state_dict": weights}, path)
    return path


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: weights_file(folder / "a.safetensors"),
        lambda folder: weights_file(folder / "a.pth"),
        lambda folder: as_training_checkpoint(folder / "a.pth.tar"),
        lambda folder: weights_file(folder / "a.safetensors").rename(folder / "safetensors.bin"),
        lambda folder: weights_file(folder / "a.pth").rename(folder / "an odd näme, 100%"),
    ],
)
def test_a_file_gives_its_weights_bit_for_bit(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    file = write(tmp_path)
    before = torch.get_rng_state()
    network, sha256 = loaded(file)
    assert_same(network, backbone())
    assert sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    state = torch.get_rng_state()
    torch.set_rng_state(before)
    build_backbone(ModelConfig("test_resnet"), 3, SIZE)
    assert torch.get_rng_state().equal(state)  # later random choices do not depend on the weights


def test_half_precision_is_widened(tmp_path: Path) -> None:
    half = {k: v.half() if v.is_floating_point() else v for k, v in backbone().items()}
    save_file(half, tmp_path / "half.safetensors")
    network, _ = loaded(tmp_path / "half.safetensors")
    found = network.state_dict()
    assert all(found[name].equal(half[name].to(found[name].dtype)) for name in half)


def test_files_of_torchvision_compute_what_torchvision_computes(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    theirs = resnet18()
    weights = theirs.state_dict()
    # Its older files lack these counters.
    old = {k: v for k, v in weights.items() if not k.endswith("num_batches_tracked")}
    torch.save(OrderedDict(old), tmp_path / "resnet18.pth")
    ours, _ = loaded(tmp_path / "resnet18.pth", "resnet18", 32)
    theirs.fc = nn.Identity()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs.eval()(images))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("test_vit", 96),
        ("swin_tiny_patch4_window7_224", 96),
        ("eva02_tiny_patch14_224", 98),
        ("vit_small_patch14_dinov2", 98),
    ],
)
def test_position_embeddings_are_resized_as_timm_does(name: str, size: int, tmp_path: Path) -> None:
    file = weights_file(tmp_path / "weights.safetensors", name)
    ours, _ = loaded(file, name, size)
    theirs = timm.create_model(
        name,
        pretrained=True,
        pretrained_cfg_overlay={"file": str(file)},
        num_classes=0,
        img_size=size,
    )
    assert_same(ours, theirs.state_dict())


def test_position_embeddings_of_the_same_size_are_kept(tmp_path: Path) -> None:
    network, _ = loaded(weights_file(tmp_path / "vit.safetensors", "test_vit"), "test_vit", 160)
    assert_same(network, backbone("test_vit"))


def wrong_architecture(path: Path) -> Path:
    return weights_file(path, "test_efficientnet")


def truncated(path: Path) -> Path:
    content = weights_file(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def without_some(path: Path) -> Path:
    weights = backbone()
    for name in ("conv1.0.weight", "layer1.0.bn1.bias"):
        del weights[name]
    save_file(weights | {"surplus": torch.zeros(3), "bn1.weight": torch.ones(5)}, path)
    return path


def not_finite(path: Path) -> Path:
    save_file(
        backbone() | {"bn1.weight": torch.full_like(backbone()["bn1.weight"], torch.nan)}, path
    )
    return path


def overflowing(path: Path) -> Path:
    """Finite in double precision, but not in that of the network."""
    huge = backbone()["bn1.weight"].double() * 1e300
    save_file(backbone() | {"bn1.weight": huge}, path)
    return path


def negative_variance(path: Path) -> Path:
    variance = backbone()["bn1.running_var"]
    save_file(backbone() | {"bn1.running_var": torch.full_like(variance, -1)}, path)
    return path


def whole_numbers(path: Path) -> Path:
    weights = backbone()
    save_file(
        weights | {"bn1.weight": torch.ones_like(weights["bn1.weight"], dtype=torch.int8)}, path
    )
    return path


def content(value: bytes) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path.write_bytes(value)
        return path

    return write


def pickled(value: Any) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        torch.save(value, path)
        return path

    return write


@pytest.mark.parametrize(
    ("write", "suffix", "expected"),
    [
        (wrong_architecture, ".safetensors", r"does not fit test_resnet.* \d+ missing .*\d+ extra"),
        (wrong_architecture, ".pth", r"does not fit test_resnet.*\d+ missing"),
        (truncated, ".safetensors", "damaged or truncated"),
        (truncated, ".pth", "damaged, truncated"),
        (
            without_some,
            ".safetensors",
            r"2 missing \(conv1\.0\.weight, layer1\.0\.bn1\.bias\), 1 extra \(surplus\), "
            r"1 of another shape \(bn1\.weight\)",
        ),
        (whole_numbers, ".safetensors", r"1 of another shape \(bn1\.weight\)"),
        (not_finite, ".safetensors", "not finite"),
        (overflowing, ".safetensors", "not finite"),
        (negative_variance, ".safetensors", r"bn1\.running_var is a variance"),
        (content(b""), ".safetensors", "damaged or truncated"),
        (content(b""), ".pth", "damaged, truncated"),
        (content(b"not weights at all, but text"), ".pth", "damaged"),
        (pickled({"epoch": 3}), ".pth", "holds no weights"),
        (pickled([torch.zeros(3)]), ".pth", "holds no weights"),
        (pickled({3: torch.zeros(3)}), ".pth", "holds no weights"),
    ],
)
def test_other_files_are_refused_in_one_line(
    write: Callable[[Path], Path], suffix: str, expected: str, tmp_path: Path
) -> None:
    file = write(tmp_path / f"weights{suffix}")
    with pytest.raises(InputError, match=expected) as failure:
        loaded(file)
    assert str(failure.value).startswith(f"{file}: ")
    assert "\n" not in str(failure.value) and len(str(failure.value)) < 600


class Attack:
    """Runs a command when it is unpickled."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.sign),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_does_not(zipped: bool, tmp_path: Path) -> None:
    file, sign = tmp_path / "weights.pth", tmp_path / "sign"
    content = backbone() | {"attack": Attack(sign)}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"could run code") as failure:
        loaded(file)
    assert "mkdir" in str(failure.value) and "\n" not in str(failure.value)
    assert not sign.exists()
    file.write_bytes(pickle.dumps(Attack(sign)))
    with pytest.raises(InputError, match="could run code"):
        loaded(file)
    assert not sign.exists()


def test_nothing_is_loaded_in_part_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = without_some(tmp_path / "weights.safetensors")
    config = ModelConfig("test_resnet", weights=str(file))
    torch.manual_seed(0)
    network = build_backbone(config, 3, SIZE)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(InputError):
        load_weights(network, config, 3, SIZE)
    assert_same(network, before)
    config.weights_partial = True
    load_weights(network, config, 3, SIZE)
    own = ("conv1.0.weight", "layer1.0.bn1.bias", "bn1.weight")
    assert_same(network, backbone() | {name: before[name] for name in own})
    assert "2 missing (conv1.0.weight, layer1.0.bn1.bias)" in capsys.readouterr().err
    with pytest.raises(InputError, match="does not fit"):  # no tensor at all does
        loaded(wrong_architecture(tmp_path / "other.safetensors"), "test_vit", weights_partial=True)


def test_weights_must_have_the_hash_that_is_asked_for(tmp_path: Path) -> None:
    file = weights_file(tmp_path / "a.safetensors")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert loaded(file, weights_sha256=sha256)[1] == sha256
    with pytest.raises(InputError, match=sha256):
        loaded(file, weights_sha256="0" * 64)


def test_a_run_and_its_exports_give_their_backbone_and_their_input(tmp_path: Path) -> None:
    import wcl

    run = tiny_run(tmp_path / "run", epochs=1)
    places = [run, run / "encoder.safetensors"]
    places += [wcl.export(run, to) for to in ("timm", "safetensors", "hub-folder")]
    expected = wcl.load(run).backbone.state_dict()
    for place in places:
        config = ModelConfig("conv_tiny", weights=str(place))
        assert input_format(config) == InputFormat(1, 32, (0.3,), (0.35,))
        network = build_backbone(config, 1, 32)
        load_weights(network, config, 1, 32)
        assert_same(network, expected)
        assert origin(config) == place.name
    with pytest.raises(InputError, match="weights of conv_tiny, not of resnet18"):
        loaded(run, "resnet18")


def test_a_stem_that_differs_by_its_stride_alone_is_noticed(tmp_path: Path) -> None:
    stated = Description(ModelConfig("resnet_small", "cifar"), (), 3, 32, (0.5,) * 3, (0.5,) * 3)
    Encoder(stated).save(tmp_path / "a.safetensors")
    loaded(tmp_path / "a.safetensors", "resnet_small", 32, stem="cifar")
    with pytest.raises(InputError, match="with the stem cifar, not of resnet_small with the stem"):
        loaded(tmp_path / "a.safetensors", "resnet_small", 32, stem="stride2")


def test_a_damaged_run_is_refused(tmp_path: Path) -> None:
    stated = Description(ModelConfig("test_resnet"), (), 3, 32, (0.5,) * 3, (0.5,) * 3)
    file = tmp_path / "encoder.safetensors"
    Encoder(stated).save(file)
    damaged = bytearray(file.read_bytes())
    damaged[-100] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        loaded(tmp_path)


def test_a_folder_of_the_hub_says_how_to_feed_it(tmp_path: Path) -> None:
    weights_file(tmp_path / "model.safetensors")
    values = {"input_size": [3, 96, 96], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architecture": "test_resnet", "pretrained_cfg": values}))
    model = ModelConfig("test_resnet.r160_in1k", weights=str(tmp_path))
    assert input_format(model) == InputFormat(3, 96, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert_same(loaded(tmp_path)[0], backbone())
    with pytest.raises(InputError, match="weights of test_resnet, not of test_vit"):
        loaded(tmp_path, "test_vit")
    wrong = [{"mean": 3}, {"std": [0]}, 5]
    for damaged in ("{", *(json.dumps({"pretrained_cfg": each}) for each in wrong)):
        config.write_text(damaged)
        with pytest.raises(InputError, match=r"config\.json"):
            input_format(model)


def test_other_weights_are_fed_as_timm_feeds_the_model(tmp_path: Path) -> None:
    file = weights_file(tmp_path / "a.safetensors")
    half = (0.5, 0.5, 0.5)
    for weights in (str(file), "timm"):
        model = ModelConfig("test_resnet", weights=weights)
        assert input_format(model) == InputFormat(3, 160, half, half)
    lite = input_format(ModelConfig("tf_efficientnet_lite0", weights="timm"))
    assert lite == InputFormat(3, 224, half, half)
    assert origin(ModelConfig("test_resnet", weights="timm")) == "timm:test_resnet.r160_in1k"


@pytest.mark.parametrize(
    ("weights", "name", "expected"),
    [
        ("nowhere.pth", "test_resnet", "nowhere.pth: no such weights; give timm"),
        ("timm:test_resnet", "test_resnet", "no such weights; give timm"),
        ("timm", "conv_tiny", "timm has no weights for conv_tiny"),
        ("timm", "test_vit4", "timm has no weights for test_vit4"),
        ("timm", "resnt18", r"--model\.backbone: .*did you mean resnet18"),
        ("timm", "resnet18.nothing", r"--model\.backbone: .*nothing"),
    ],
)
def test_weights_that_do_not_exist_are_named(weights: str, name: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_weights(nn.Identity(), ModelConfig(name, weights=weights), 3, SIZE)
    if not re.search("no weights for", expected):
        with pytest.raises(InputError, match=expected):
            input_format(ModelConfig(name, weights=weights))
