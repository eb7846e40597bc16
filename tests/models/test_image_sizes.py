"""Any backbone of timm takes views, small crops and later images of other sizes, or says which."""

from pathlib import Path

import pytest
import timm
import torch

import wcl
from images import photo_folder
from runs import assert_same_run, stopped_after, tiny_run
from wcl.cli import run_command
from wcl.config import ModelConfig
from wcl.models.backbones import timm_options
from wcl.models.description import Description
from wcl.models.encoder import Encoder, check_image_size
from wcl.system.errors import InputError

FAMILIES = [
    "test_resnet",
    "convnext_atto",
    "vit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224",
    "efficientnet_lite0",
    "mobilenetv3_small_050",
    "regnetx_002",
    "eva02_tiny_patch14_224",
    "vit_small_patch14_dinov2",
]
ONE_STEP = (
    "--epochs 1 --batch_size 4 --image_size 48 --crops.count 1 --crops.size 32 --num_workers 0 "
    "--model.head_hidden_dim 8 --log.tensorboard false --log.health 0"
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_folder(tmp_path_factory.mktemp("data") / "photos", each=2)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_trains_on_crops_is_evaluated_at_another_size_and_opens_in_timm(
    name: str, photos: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["pretrain", "folder", "--data", str(photos), "--out", str(run), *ONE_STEP.split()]
    assert run_command([*words, "--model.backbone", name]) == 0
    encoder = wcl.load(run)
    result = wcl.evaluate(encoder, "knn", str(photos), image_size=64, k=1, num_workers=0)
    assert 0 <= result.top1 <= 1
    exported = wcl.export(run, "timm")
    again = timm.create_model(name, **timm_options(name, 3, 48), checkpoint_path=exported).eval()
    with torch.no_grad():
        for size in (48, 32):
            images = torch.randn(2, 3, size, size)
            features = encoder.backbone(images)
            assert features.shape == (2, encoder.feature_dim)
            # Ours multiplies small maps by matrices, which rounds differently.
            torch.testing.assert_close(again(images), features)


def test_at_its_own_size_a_vit_computes_what_timm_does() -> None:
    ours = network("vit_tiny_patch16_224", 64).eval()
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64).eval()
    theirs.load_state_dict(ours.backbone.state_dict())
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert ours.backbone(images).equal(theirs(images))


def test_a_hub_folder_of_a_size_that_patches_do_not_divide_opens_in_timm(tmp_path: Path) -> None:
    encoder = network("test_vit", 50).eval()
    encoder.save(tmp_path / "encoder.safetensors")
    folder = wcl.export(tmp_path, "hub-folder")
    images = torch.randn(2, 3, 50, 50)
    with torch.no_grad():
        theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        assert theirs(images).equal(encoder.backbone(images))


def test_a_vit_with_crops_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "epochs": 1,
        "model": {"backbone": "test_vit", "head_hidden_dim": 16, "head_out_dim": 8},
        "crops": {"count": 2, "size": 16, "neighbors": False},
    }
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    tiny_run(whole, **settings)
    with stopped_after(2, monkeypatch):
        tiny_run(parts, **settings)
    tiny_run(parts, resume=True, **settings)
    assert_same_run(whole, parts)


@pytest.mark.parametrize(
    ("name", "built_for", "size", "works"),
    [
        ("efficientvit_m0", 128, 64, "use 128"),  # attention of one size
        ("swin_tiny_patch4_window7_224", 64, 50, "use 32 or 64"),  # patches of 4 pixels
        ("conv_tiny", 32, 8, "use 32"),
    ],
)
def test_a_size_that_a_network_cannot_take_is_refused_with_others(
    name: str, built_for: int, size: int, works: str
) -> None:
    with pytest.raises(InputError, match=rf"--crops\.size: {name} .*{size}×{size}.*; {works}$"):
        check_image_size(network(name, built_for), size, "--crops.size")


def test_a_size_that_a_network_cannot_be_built_for_is_refused_with_others() -> None:
    with pytest.raises(InputError, match=r"--image_size: nest_tiny .*50×50.*; use 32 or 64 or 224"):
        network("nest_tiny", 50)


def network(name: str, size: int) -> Encoder:
    torch.manual_seed(0)
    return Encoder(Description(ModelConfig(name), ("g",), 3, size, (0.5,) * 3, (0.5,) * 3))
