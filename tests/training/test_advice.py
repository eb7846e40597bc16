"""Warnings before a run."""

from pathlib import Path
from typing import Any

import pytest

from built_methods import small_encoder
from runs import TINY, prepared
from wcl.models.encoder import Encoder
from wcl.training.advice import FEW_STEPS, advice, smallest_map

# Enough images and steps, so that nothing but the setting in question is remarkable.
PLAIN: dict[str, Any] = {**TINY, "limit": 0, "epochs": 100, "batch_size": 256}
WARNINGS = [
    ({"epochs": 1}, ["5 steps", f"--epochs {FEW_STEPS // 5}"]),
    ({"limit": 300, "batch_size": 64}, ["300 images", "--model.weights timm"]),
    ({"batch_size": 700, "epochs": 400}, ["one step per epoch", "--batch_size"]),
    ({"method": "pcl", "loss": {"warmup_epochs": 100}}, ["moco", "--loss.warmup_epochs below 100"]),
    ({"method": "mochi", "epochs": 41, "loss": {"warmup_epochs": 40}}, []),
    ({"image_size": 8, "model": {"backbone": "resnet_small"}}, ["8×8", "--image_size"]),
    ({"model": {"backbone": "resnet18"}}, ["single", "--image_size of at least 64", "stem cifar"]),
    ({"model": {"backbone": "resnet18", "stem": "cifar"}}, []),
    (
        {"crops": {"count": 1, "neighbors": False, "features": "plain"}},
        ["--crops.features", "--crops.neighbors true"],
    ),
    ({}, []),
]


@pytest.mark.parametrize(("changes", "expected"), WARNINGS)
def test_a_warning_names_the_setting_and_the_remedy(
    changes: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    found = list(advice(prepared(tmp_path / "run", **{**PLAIN, **changes})))
    assert len(found) == bool(expected)
    assert all(words in found[0] for words in expected)


def test_maps_are_those_of_the_network() -> None:
    """Three of the four stages of a ResNet with the stem for small images halve them."""
    encoder: Encoder = small_encoder(("g",))
    assert [smallest_map(encoder, size) for size in (64, 32, 8)] == [8, 4, 1]
