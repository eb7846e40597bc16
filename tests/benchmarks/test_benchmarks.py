"""The benchmarks run and print named figures; their values are not asserted."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import (
    arithmetic,
    augment,
    crops,
    eval,  # noqa: A004
    knn,
    maps,
    micro_batch,
    peers,
    photos,
    scale,
    step,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.peer_training import Workload
from wcl.config import AugmentConfig, ModelConfig
from wcl.paper.synthetic import write_photos
from wcl.system import machine


def figures(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    main([name, "--rounds", "1", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("bench") == name
    return printed  # type: ignore[no-any-return]


def test_without_a_name_the_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == list(BENCHMARKS)


def test_a_step_is_measured_under_its_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"_BATCH": 8, "_IMAGES": 16, "_PHOTO_BATCH": 2, "_PHOTOS": 4, "_PHOTO_SIZE": 64}
    for name, value in small.items():
        monkeypatch.setattr(step, name, value)
    found = figures("step", capsys)
    names = {"wcl_over_simclr", "loader_efficiency_small", "loader_efficiency_photos"}
    assert found.keys() == names
    assert min(found.values()) > 0


def test_small_maps_are_measured_under_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(maps, "_IMAGES", 8)
    found = figures("maps", capsys)
    assert {"layer_1x1", "layer_2x2", "resnet_small_32", "resnet18_64"} <= found.keys()
    assert min(found.values()) > 0


def test_networks_are_compared_with_the_arithmetic_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(arithmetic, "_SIDE", 64)
    only = {"conv_tiny": (ModelConfig(backbone="conv_tiny"), 32, 4)}
    monkeypatch.setattr(arithmetic, "_NETWORKS", only)
    found = figures("arithmetic", capsys)
    assert {"conv_tiny_of_limit", "conv_tiny_bfloat16_over_float32"} <= found.keys()
    assert max(found["product_of_limit"], found["convolution_of_limit"]) == 1
    assert min(found.values()) > 0


def test_flops_are_counted_as_by_hand() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, stride=2, groups=8),
        nn.Flatten(),
        nn.Linear(8 * 9, 5),
    )
    images, sides, depthwise = 2, 8 * 8, 3 * 3
    by_hand = images * 2 * (sides * 8 * 3 * 9 + depthwise * 8 * 9 + 72 * 5)
    assert arithmetic._forward_flops(network, torch.randn(images, 3, 8, 8)) == by_hand


def test_without_lightly_peers_have_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lightly", None)  # an import fails
    found = figures("peers", capsys)
    assert "train_over_lightly" in found and {*found.values()} == {None}


def test_peers_are_measured_under_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lightly", reason="needs lightly, of the extra bench")
    from benchmarks import lightly_simclr

    model = ModelConfig(backbone="conv_tiny", head_hidden_dim=16)
    augmentation = AugmentConfig()
    monkeypatch.setattr(peers, "_SMALL", Workload(model, 8, 32, 4, augmentation))
    monkeypatch.setattr(peers, "_PHOTOS", Workload(model, 4, 64, 2, augmentation))
    monkeypatch.setattr(peers, "_AUGMENTED", 2)
    monkeypatch.setattr(lightly_simclr, "_WORKERS", (0,))
    monkeypatch.setattr(peers, "peak_memory", lambda *given: {"ours": 1.0, "lightly": 2.0})
    found = figures("peers", capsys)
    assert found.pop("knn_points_over_lightly") is None  # without --data
    assert found["train_memory_over_lightly"] == found["train_photos_memory_over_lightly"] == 0.5
    names = ("train", "train_photos", "embed", "augment_photos")
    assert {f"{name}_over_lightly" for name in names} <= found.keys()
    assert min(found.values()) > 0


def test_the_way_of_photos_is_measured_under_its_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"_PHOTOS": 2, "_LARGE_PHOTOS": 1, "_LARGE": (800, 600)}.items():
        monkeypatch.setattr(photos, name, value)
    found = figures("photos", capsys)
    assert {"decode_simplejpeg_over_pil", "decode_large_simplejpeg_over_pil"} <= found.keys()
    for name in ("views", "folder_views", "large_views"):
        assert found[f"{name}_torch_over_pil"] > 0


@pytest.mark.parametrize("reduction", [1, 2])
def test_the_decoders_that_are_compared_give_the_same_pixels(
    reduction: int, tmp_path: Path
) -> None:
    decode = photos.simplejpeg_decoder()
    if decode is None:
        pytest.skip("needs simplejpeg, of the extra bench")
    write_photos(tmp_path, 2)
    for path in tmp_path.iterdir():
        file = path.read_bytes()
        assert np.array_equal(photos.by_pil(file, reduction), decode(file, reduction))


def test_augmentation_is_measured_under_its_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(augment, "_IMAGES", 16)
    found = figures("augment", capsys)
    ratio = found["ours_views_per_second"] / found["torchvision_views_per_second"]
    assert found["over_torchvision"] == pytest.approx(ratio)
    assert "over_kornia" in found


def test_the_search_is_measured_under_its_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(knn, "_EXACT", (1500, 32))
    monkeypatch.setattr(knn, "_SIZES", (1000, 2000))
    monkeypatch.setattr(knn, "_QUERIES", 500)
    found = figures("knn", capsys)
    assert found["ours_over_faiss_flat"] > 0
    assert 0.95 <= found["approx_recall"] <= 1
    ratio = found["approximate_seconds_2000"] / found["exact_seconds_2000"]
    assert found["approx_over_exact"] == pytest.approx(ratio)


def test_crops_are_measured_beside_their_arithmetic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crops, "_IMAGES", 2)
    monkeypatch.setattr(crops, "_SIMCLR", [(2, 64)])
    monkeypatch.setattr(crops, "_CROPS", [(2, 48), (6, 32)])
    found = figures("crops", capsys)
    assert found["crops_over_simclr"] > 0
    assert math.isclose(found["pixels_ratio"], (2 * 48**2 + 6 * 32**2) / (2 * 64**2))


def test_the_probe_is_measured_under_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(eval, "_IMAGES", 2000)
    monkeypatch.setattr(eval, "_TIMED", 64)
    monkeypatch.setattr(eval, "_EPOCHS", 2)
    found = figures("eval", capsys)
    assert found["full_over_fast"] == pytest.approx(found["full_seconds"] / found["fast_seconds"])


def test_large_batches_are_measured_under_their_names_where_they_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "_IMAGES", (64, 128))
    for name, value in {"_BATCH": 16, "_MICRO_BATCH": 8, "_SIZE": 32}.items():
        monkeypatch.setattr(micro_batch, name, value)
    monkeypatch.setattr(machine, "available_memory", lambda: 6 * 4 * 2 * 200**2)
    found = figures("scale", capsys)
    assert found["tiled_peak_gb"] == found["tiled_gb_128"] > 0
    ratio = found["tiled_seconds_64"] / found["plain_seconds_64"]
    assert found["tiled_over_plain"] == pytest.approx(ratio)
    assert found["tiled_seconds_128"] > 0
    assert "plain_seconds_128" not in found
    assert found["bytes_per_step"] > found["label_bytes_per_step"]
    assert found["authors_bytes_per_step"] > found["authors_label_bytes_per_step"]


def test_the_losses_that_are_compared_are_the_same() -> None:
    tiled, plain = scale.embeddings(600), scale.embeddings(600)
    assert scale.tiled(*tiled) == pytest.approx(scale._plain(*plain), rel=1e-5)
    for one, other in zip(tiled, plain, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_the_bytes_of_a_step_are_those_of_the_tensors_that_are_sent() -> None:
    batch, processes, width = 12, 3, 5
    others, own = torch.zeros(8, width), torch.zeros(4, width)
    from_each_other = 2 * own.nbytes  # what two processes add to the gradient of its rows
    gathered = scale.gathered_bytes(batch, processes, width, gradient=True)
    assert gathered == 4 * (others.nbytes + from_each_other)
    assert scale.gathered_bytes(batch, processes, width, gradient=False) == 4 * others.nbytes
    assert scale.neighbor_bytes(batch, processes) == 2 * torch.arange(8).nbytes
    assert scale.mask_bytes(batch, processes) == 2 * torch.zeros(4, 12).nbytes
