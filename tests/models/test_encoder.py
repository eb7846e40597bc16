"""The network: what it is made of, that it survives a file, and that timm can read it."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from wcl.config import ModelConfig
from wcl.data.decode import center_crop
from wcl.models.backbones import build_backbone
from wcl.models.description import Description
from wcl.models.encoder import Encoder, _seal, load, projection_head
from wcl.system.errors import InputError

Stem = Literal["native", "cifar", "stride2"]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def described(
    backbone: str = "resnet_small",
    stem: Stem = "cifar",
    heads: tuple[str, ...] = ("g", "phi"),
    size: int = 32,
    layers: int = 2,
) -> Description:
    model = ModelConfig(backbone, stem, head_layers=layers, head_hidden_dim=24, head_out_dim=8)
    return Description(model, heads, 3, size, MEAN, STD, method="wcl", epoch=7, data="digits")


def trained(description: Description) -> Encoder:
    """An encoder whose norm layers have seen data, in evaluation mode."""
    torch.manual_seed(0)
    encoder = Encoder(description)
    encoder.train()
    encoder(images(6, description.image_size))
    return encoder.eval()


def images(count: int, size: int) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(3))


def pixels(count: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def backbone_weights(path: Path) -> dict[str, Tensor]:
    prefix = "backbone."
    return {k.removeprefix(prefix): v for k, v in load_file(path).items() if k.startswith(prefix)}


@pytest.mark.parametrize("heads", [(), ("g",), ("phi",), ("g", "phi")])
@pytest.mark.parametrize("layers", [2, 3])
def test_an_encoder_comes_back_from_its_file_bit_for_bit(
    tmp_path: Path, heads: tuple[str, ...], layers: int
) -> None:
    encoder = trained(described(heads=heads, layers=layers))
    encoder.save(tmp_path / "encoder.safetensors")
    x = images(5, 32)
    before = encoder(x)
    for place in (tmp_path, tmp_path / "encoder.safetensors", str(tmp_path)):
        again = load(place)
        assert again.description == encoder.description
        assert not again.training
        after = again(x)
        assert before.keys() == after.keys()
        assert all(before[name].equal(after[name]) for name in before)
    assert [file.name for file in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_channels_last_weights_survive_the_file(tmp_path: Path) -> None:
    encoder = trained(described()).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    encoder.save(tmp_path / "encoder.safetensors")
    torch.testing.assert_close(load(tmp_path)(images(2, 32))["h"], encoder(images(2, 32))["h"])


def test_saved_backbone_loads_into_plain_timm(tmp_path: Path) -> None:
    import timm

    encoder = trained(described("resnet18", "native"))
    encoder.save(tmp_path / "encoder.safetensors")
    plain = timm.create_model("resnet18", num_classes=0)
    plain.load_state_dict(backbone_weights(tmp_path / "encoder.safetensors"), strict=True)
    x = images(3, 32)
    assert plain.eval()(x).equal(encoder(x)["h"])


def test_a_saved_small_resnet_loads_into_timm_by_hand(tmp_path: Path) -> None:
    from timm.models import resnet

    encoder = trained(described("resnet_small", "native"))
    encoder.save(tmp_path / "encoder.safetensors")
    block: Any = resnet.BasicBlock
    plain = resnet.ResNet(
        block,
        (1, 1, 1, 1),
        num_classes=0,
        channels=(32, 64, 128, 256),
        stem_type="deep",
        stem_width=16,
    )
    plain.load_state_dict(backbone_weights(tmp_path / "encoder.safetensors"), strict=True)
    x = images(3, 32)
    assert encoder.feature_dim == 256
    torch.testing.assert_close(plain.eval()(x), encoder(x)["h"])


@pytest.mark.parametrize("name", ["resnet18", "resnet_small"])
@pytest.mark.parametrize(("stem", "side"), [("native", 1), ("stride2", 2), ("cifar", 4)])
def test_the_stem_sets_the_size_of_the_feature_map(name: str, stem: Stem, side: int) -> None:
    backbone: Any = build_backbone(ModelConfig(name, stem), 3, 32)
    assert backbone.eval().forward_features(images(1, 32)).shape[2:] == (side, side)


@pytest.mark.parametrize(("stem", "stride"), [("cifar", 1), ("stride2", 2)])
@pytest.mark.parametrize("channels", [1, 3])
def test_small_stems_begin_with_three_by_three_and_do_not_pool(
    stem: Stem, stride: int, channels: int
) -> None:
    backbone: Any = build_backbone(ModelConfig("resnet18", stem), channels, 32)
    first = backbone.conv1
    assert (first.in_channels, first.kernel_size, first.stride) == (channels, (3, 3), (stride,) * 2)
    assert not [m for m in backbone.modules() if isinstance(m, nn.MaxPool2d)]


def test_a_small_stem_on_another_architecture_is_an_error() -> None:
    with pytest.raises(InputError, match="for ResNets"):
        build_backbone(ModelConfig("mobilenetv3_small_050", "cifar"), 3, 32)


@pytest.mark.parametrize(("layers", "widths"), [(2, [10, 24]), (3, [10, 24, 24])])
def test_heads_are_linear_norm_relu_and_then_linear(layers: int, widths: list[int]) -> None:
    head = projection_head(10, 24, 8, layers)
    hidden = [nn.Linear, nn.BatchNorm1d, nn.ReLU] * (layers - 1)
    assert [type(part) for part in head] == [*hidden, nn.Linear]
    linear = [part for part in head if isinstance(part, nn.Linear)]
    assert [part.in_features for part in linear] == widths
    assert [part.out_features for part in linear] == [24] * (layers - 1) + [8]
    assert [part.bias is not None for part in linear] == [False] * (layers - 1) + [True]


@pytest.mark.parametrize("heads", [(), ("g",), ("phi",), ("g", "phi"), ("mine",)])
def test_each_head_gives_a_projection_by_its_name(heads: tuple[str, ...]) -> None:
    out = trained(described(heads=heads))(images(2, 32))
    assert tuple(out) == ("h", *heads)


def test_a_network_of_our_own_works(tmp_path: Path) -> None:
    encoder = trained(described("conv_tiny", "native", size=64))
    encoder.save(tmp_path / "encoder.safetensors")
    out = encoder(images(2, 64))
    assert out["h"].shape == (2, encoder.feature_dim)
    assert out["g"].shape == (2, 8)
    assert load(tmp_path)(images(2, 64))["h"].equal(out["h"])


def manual(encoder: Encoder, bytes_: Tensor) -> Tensor:
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    with torch.no_grad():
        features: Tensor = encoder.backbone((bytes_.float() / 255 - mean) / std)
    return features


def test_embed_takes_bytes_pil_images_and_files_alike(tmp_path: Path) -> None:
    encoder = trained(described())
    raw = pixels(4, 32)
    pictures = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in raw]
    files: list[str | Path] = []
    for index, picture in enumerate(pictures):
        picture.save(tmp_path / f"{index}.png")
        files.append(tmp_path / f"{index}.png" if index % 2 else str(tmp_path / f"{index}.png"))
    expected = manual(encoder, raw)
    assert encoder.embed(raw).equal(expected)
    assert encoder.embed(pictures).equal(expected)
    assert encoder.embed(files).equal(expected)


def test_embed_takes_arrays_and_floats_alike() -> None:
    encoder, raw = trained(described()), pixels(4, 32)
    expected = encoder.embed(raw)
    for same in (raw.numpy(), raw.float() / 255, raw.numpy().astype(">f4") / np.float32(255)):
        assert encoder.embed(same).equal(expected)
    mirrored = raw.numpy()[:, :, :, ::-1]  # negative strides
    assert encoder.embed(mirrored).equal(encoder.embed(raw.flip(-1)))
    for one in (raw[2], raw[2].numpy(), raw[2].double() / 255):
        torch.testing.assert_close(encoder.embed(one), expected[2:3])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (torch.full((1, 3, 32, 32), 2.0), "must be between 0 and 1, not 2 to 2"),
        (np.full((1, 3, 32, 32), -0.5), "must be between 0 and 1, not -0.5 to -0.5"),
        (torch.full((1, 3, 32, 32), float("nan")), "must be between 0 and 1, not nan"),
        (np.zeros((1, 3, 32, 32), np.uint16), "uint8 from 0 to 255 or floats from 0 to 1"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.long), "uint8 from 0 to 255 or floats"),
        (np.zeros((2, 32, 32, 3), np.uint8), r"\(N, 3, height, width\), not \(2, 32, 32, 3\)"),
        (np.zeros((32, 32), np.uint8), r"not \(32, 32\)"),
        (np.zeros((1, 3, 32, 32), np.longdouble), "uint8 from 0 to 255 or floats"),
        (np.zeros((1, 3, 0, 0), np.uint8), "0×0 pixels do not fit the network .* use 32×32"),
    ],
)
def test_embed_refuses_pixels_of_another_range_or_shape(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trained(described()).embed(given)


def test_embed_crops_larger_pictures_at_the_center(tmp_path: Path) -> None:
    encoder = trained(described())
    array = np.random.default_rng(0).integers(256, size=(50, 70, 3), dtype=np.uint8)
    picture = Image.fromarray(array)
    picture.save(tmp_path / "large.png")
    expected = manual(encoder, center_crop(picture, 32)[None])
    assert encoder.embed([picture]).equal(expected)
    assert encoder.embed([tmp_path / "large.png"]).equal(expected)


def test_embed_gives_the_same_in_small_batches() -> None:
    encoder, raw = trained(described()), pixels(7, 32)
    torch.testing.assert_close(encoder.embed(raw, batch_size=3), encoder.embed(raw))


def test_embed_of_nothing_has_no_rows() -> None:
    assert trained(described()).embed([]).shape == (0, 256)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([torch.zeros(3, 32, 32, dtype=torch.uint8)], "list with Tensor in it"),
        (["a.jpg", None], "list with NoneType in it"),
        ([np.zeros((3, 32, 32), np.uint8)], "list with ndarray in it"),
        ({"a.jpg": 1}, "dict"),
        (iter(["a.jpg"]), "list_iterator"),
        (None, "NoneType"),
    ],
)
def test_embed_says_in_one_line_what_it_takes(
    given: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (32, 32)).save("a.jpg")
    with pytest.raises(TypeError) as refused:
        trained(described()).embed(given)
    assert str(refused.value) == (
        "embed takes a file or PIL image, a list of these, or one tensor or NumPy array "
        f"(N, 3, height, width); got {says}"
    )


@pytest.mark.parametrize("training", [True, False])
def test_embed_leaves_the_encoder_as_it_was(training: bool) -> None:
    encoder = trained(described())
    expected = encoder.embed(pixels(3, 32))
    encoder.train(training)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    found = encoder.embed(pixels(3, 32))
    assert found.equal(expected)
    assert not found.requires_grad
    assert {module.training for module in encoder.modules()} == {training}
    assert all(value.equal(before[name]) for name, value in encoder.state_dict().items())


def test_embed_restores_the_mode_after_an_error() -> None:
    encoder = trained(described()).train()
    with pytest.raises(ValueError, match="images must be"):
        encoder.embed(torch.zeros(1, 5, 32, 32, dtype=torch.uint8))
    assert encoder.training


@pytest.mark.parametrize(
    ("wrong", "meant"), [("resnet_smal", "resnet_small"), ("resnet50x", "resnet50")]
)
def test_an_unknown_backbone_is_answered_with_the_nearest_name(wrong: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"did you mean {meant}"):
        build_backbone(ModelConfig(wrong), 3, 32)


@pytest.mark.parametrize("content", [b"", b"no weights here", bytes(range(256)) * 9])
def test_a_file_of_another_kind_is_an_input_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "encoder.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="not a safetensors file"):
        load(tmp_path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_safetensors_of_somebody_else_are_an_input_error(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors", metadata)
    with pytest.raises(InputError, match="not an encoder"):
        load(tmp_path / "model.safetensors")


WRONG: dict[str, Any] = {
    "size a text": {"image_size": "32"},
    "size 0": {"image_size": 0},
    "size enormous": {"image_size": 10**9},
    "channels negative": {"channels": -3},
    "mean of two": {"mean": [0.5, 0.4]},
    "mean not a number": {"mean": [float("nan"), 0.4, 0.3]},
    "std 0": {"std": [0.2, 0, 0.3]},
    "heads a number": {"heads": 2},
    "model missing": {"model": None},
    "backbone unknown": {"model": {"backbone": "resnet\n18"}},
    "hidden dim enormous": {"model": {"head_hidden_dim": 2**60}},
    "setting unknown": {"model": {"color": "red"}},
}


def restate(path: Path, description: str) -> None:
    """Give a saved encoder another description."""
    save_file(load_file(path), path, {"wcl-encoder-1": description})


def stated(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as opened:
        found: dict[str, Any] = json.loads(opened.metadata()["wcl-encoder-1"])
    return found


@pytest.mark.parametrize("kind", WRONG)
def test_a_description_of_what_cannot_be_is_an_input_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    right = stated(path)
    restate(path, json.dumps(right))
    assert load(path).description == described()
    wrong = {**right, **WRONG[kind]}
    if isinstance(wrong["model"], dict):
        wrong["model"] = {**right["model"], **wrong["model"]}
    wrong.pop("seal")
    restate(path, json.dumps(wrong | {"seal": _seal(wrong, load_file(path))}))
    with pytest.raises(InputError, match=r"encoder\.safetensors: damaged") as refused:
        load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", "{}", "[" * 100_000])
def test_a_description_that_is_none_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    restate(path, text)
    with pytest.raises(InputError, match="damaged, or written by another version"):
        load(path)


def test_what_a_later_version_adds_to_a_description_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    later = {**stated(path), "taste": "sweet"}
    later.pop("seal")
    later["seal"] = _seal(later, load_file(path))
    restate(path, json.dumps(later))
    assert load(path).description == described()


def test_a_change_of_the_description_or_of_a_head_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    whole = path.read_bytes()
    for old, new in ((b'size\\": 32', b'size\\": 33'), (whole[-1:], bytes([whole[-1] ^ 1]))):
        assert old in whole
        path.write_bytes(new.join(whole.rsplit(old, 1)))
        with pytest.raises(InputError, match="damaged"):
            load(path)
    path.write_bytes(whole)
    assert load(path).description == described()


def test_an_encoder_is_printed_on_one_line() -> None:
    assert repr(Encoder(described())) == (
        "Encoder(resnet_small, 256 features, size 32, wcl, epoch 7)"
    )


def test_weights_that_do_not_fit_are_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
    save_file({"weight": torch.zeros(2)}, path, metadata)
    with pytest.raises(InputError, match="damaged"):
        load(path)


def sealed_anew(path: Path, weights: dict[str, Tensor], **model: Any) -> None:
    """Give a saved encoder other weights and settings, and the seal that belongs to them."""
    found = stated(path)
    found["model"] |= model
    found.pop("seal")
    save_file(weights, path, {"wcl-encoder-1": json.dumps(found | {"seal": _seal(found, weights)})})


def test_a_network_larger_than_its_weights_is_refused_before_it_is_built(tmp_path: Path) -> None:
    """A network that is built draws its first weights at random."""
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    sealed_anew(path, load_file(path), head_hidden_dim=500)
    before = torch.get_rng_state()
    with pytest.raises(InputError, match="damaged, or written by another version"):
        load(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_that_are_whole_numbers_are_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    sealed_anew(path, {name: tensor.to(torch.int8) for name, tensor in load_file(path).items()})
    with pytest.raises(InputError, match="damaged, or written by another version"):
        load(path)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64])
def test_weights_of_a_kind_that_no_run_has_are_an_input_error(
    tmp_path: Path, kind: torch.dtype
) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    weights = load_file(path)
    for wanted in (torch.float32, torch.int64):
        sealed_anew(path, {n: w.to(kind) if w.dtype == wanted else w for n, w in weights.items()})
        with pytest.raises(InputError, match="damaged, or written by another version"):
            load(path)


def test_numbers_that_torch_does_not_have_are_an_input_error(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}'
    path = tmp_path / "encoder.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(InputError, match="not a safetensors file"):
        load(path)


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_an_encoder_of_another_precision_can_be_opened(tmp_path: Path, kind: torch.dtype) -> None:
    """That of a run with `--precision 64-true` is saved in double precision."""
    path = tmp_path / "encoder.safetensors"
    original = trained(described())
    original.to(kind).save(path)
    for found, saved in zip(load(path).parameters(), original.parameters(), strict=True):
        assert torch.equal(found, saved.float())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_an_input_error(tmp_path: Path, value: float) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    weights = load_file(path)
    weights["heads.g.0.weight"][0, 0] = value
    sealed_anew(path, weights)
    with pytest.raises(InputError, match=r"encoder\.safetensors: the weights are not finite"):
        load(path)


def test_an_encoder_is_opened_whatever_kind_of_number_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    trained(described()).save(path)
    torch.set_default_dtype(torch.float64)
    try:
        assert load(path).description == described()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("", "finished an epoch"),
        ("missing", "wcl pretrain"),
        ("missing.safetensors", "wcl pretrain"),
    ],
)
def test_a_run_without_an_encoder_is_an_input_error(tmp_path: Path, name: str, remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        load(tmp_path / name)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "encoder.safetensors"
    encoder = trained(described())
    encoder.save(path)
    before = path.read_bytes()

    def half_written(target: Path, content: bytes) -> int:
        with target.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", half_written)
    with pytest.raises(OSError, match="disk full"):
        encoder.save(path)
    assert path.read_bytes() == before
