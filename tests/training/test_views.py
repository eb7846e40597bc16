"""The view specifications of a run."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from wcl.config import AugmentConfig, CropsConfig, PretrainConfig
from wcl.methods.byol import BYOLSettings
from wcl.training.views import view_specs


def some_config(**crops: Any) -> PretrainConfig:
    augment = AugmentConfig(
        scale=(0.5, 0.9), ratio=(0.9, 1.1), grayscale=0.7, mean=(0.4,), std=(0.3,)
    )
    return PretrainConfig(image_size=32, augment=augment, crops=CropsConfig(**crops))


def test_without_crops_a_step_has_two_views() -> None:
    config = some_config()
    (kind,) = view_specs(config, 1)
    assert (kind.count, kind.maker.size, kind.maker.channels) == (2, 32, 1)
    assert kind.maker.config == config.augment
    assert kind.crop_sources is None


def test_small_crops_are_the_same_augmentation_but_for_their_area() -> None:
    config = some_config(count=4, size=16, scale=(0.1, 0.2))
    full, small = view_specs(config, 1)
    assert (full.count, full.maker.size) == (2, 32)
    assert (small.count, small.maker.size, small.maker.channels) == (4, 16, 1)
    assert full.maker.config == config.augment
    assert small.maker.config == dataclasses.replace(config.augment, scale=(0.1, 0.2))


def test_early_crops_are_milder_and_of_their_own_area() -> None:
    full, small = view_specs(some_config(count=4, size=16, scale=(0.1, 0.2)), 1, mild=True)
    milder = AugmentConfig(mean=(0.4,), std=(0.3,))
    assert full.maker.config == milder
    assert small.maker.config == dataclasses.replace(milder, scale=(0.1, 0.2))


def test_only_the_small_crops_are_cut_from_others() -> None:
    full, small = view_specs(some_config(count=3, size=16), 1)
    cut = dataclasses.replace(small, crop_sources=np.arange(12).reshape(4, 3))
    index = np.array([2, 0])
    assert full.crop_sources_of(index).tolist() == [[2, 2], [0, 0]]
    assert small.crop_sources_of(index).tolist() == [[2, 2, 2], [0, 0, 0]]
    assert cut.crop_sources_of(index).tolist() == [[6, 7, 8], [0, 1, 2]]


def test_support_views_are_between_the_full_views_and_the_crops_and_not_in_pictures() -> None:
    config = dataclasses.replace(some_config(count=4, size=16), method="built_methods:Supported")
    specs = view_specs(config, 1)
    assert [(spec.count, spec.maker.size) for spec in specs] == [(2, 32), (3, 32), (4, 16)]
    assert specs[1].maker.config == specs[0].maker.config
    assert [spec.count for spec in view_specs(config, 1, count=5)] == [5, 4]


@pytest.mark.parametrize(("count", "counts"), [(1, [1]), (2, [1, 1]), (5, [3, 2])])
def test_a_method_may_augment_its_two_views_differently(count: int, counts: list[int]) -> None:
    config = dataclasses.replace(some_config(), method="byol", loss=BYOLSettings())
    specs = view_specs(config, 1, count=count)
    assert [spec.count for spec in specs] == counts
    augmentations = [(spec.maker.config.blur, spec.maker.config.solarize) for spec in specs]
    assert augmentations == [(1.0, 0.0), (0.1, 0.2)][: len(counts)]
    assert {spec.maker.config.grayscale for spec in specs} == {0.7}
