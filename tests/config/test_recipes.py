"""Recipes: their groups, their bases, and those of the systems."""

import re
from itertools import chain

import pytest
import torch

from wcl.config import PretrainConfig
from wcl.config.layering import settings
from wcl.config.recipes import recipe_about, recipe_groups, recipe_names
from wcl.config.run_config import read_recipe
from wcl.methods import METHODS, RunInfo, find_method, method_settings
from wcl.models.description import Description
from wcl.models.encoder import Encoder

_, ON_CIFAR10, ON_IMAGENET = recipe_groups().values()


def config_of(name: str) -> PretrainConfig:
    return settings(name, {}, method_settings)


def test_every_recipe_is_in_one_group() -> None:
    assert sorted(chain(*recipe_groups().values())) == recipe_names()


def test_a_recipe_overrides_single_settings_of_its_base() -> None:
    base, crops = (read_recipe(name) for name in ("imagenet-100ep", "imagenet-200ep-crops"))
    own = {"epochs", "augment.scale", "crops.count", "crops.size", "crops.scale", "crops.warmup"}
    assert {name for name in crops if crops[name] != base.get(name)} == own
    assert base.keys() <= crops.keys()


def test_every_system_has_both_recipes() -> None:
    # The recipes of wcl are the others; meanshift has `adapt`; softwcl has no authors but us.
    systems = sorted(METHODS.keys() - {"wcl", "meanshift", "softwcl"})
    assert [f"cifar10-cpu-{system}" for system in systems] == ON_CIFAR10
    assert [f"imagenet-{system}" for system in systems] == ON_IMAGENET


@pytest.mark.parametrize("name", ON_CIFAR10)
def test_systems_on_cifar10_have_the_same_network_and_budget(name: str) -> None:
    config, base = config_of(name), config_of("cifar10-cpu")
    assert name == f"cifar10-cpu-{config.method}"
    for same in ("data", "epochs", "batch_size", "image_size", "augment", "crops"):
        assert getattr(config, same) == getattr(base, same), same
    assert (config.model.backbone, config.model.stem) == (base.model.backbone, base.model.stem)
    found = find_method(config.method)
    heads = found.heads(config.loss, crops=0)
    described = Description(config.model, heads, 3, 32, config.augment.mean, config.augment.std)
    info = RunInfo(10_000, config.batch_size, 39, 0, torch.arange(10_000) % 10)
    found(Encoder(described), config.loss, info)  # with settings that fit so many images


@pytest.mark.parametrize("name", ON_IMAGENET)
def test_systems_on_imagenet_cite_their_papers(name: str) -> None:
    config = config_of(name)
    assert name == f"imagenet-{config.method}"
    assert (config.image_size, config.model.backbone) == (224, "resnet50")
    assert re.search(r", 20\d\d, (arXiv \d{4}\.\d{5}|OpenReview \w+)", recipe_about(name))
