"""Settings from recipes, files, words and Python, and the order in which they win."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from wcl.config import PretrainConfig
from wcl.config.layering import parse_settings, recipe_file, recipe_names, setting_names, settings


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_parses_and_says_what_it_is_for(name: str) -> None:
    assert isinstance(parse_settings([name]), PretrainConfig)
    assert recipe_file(name).read_text().startswith("# ")


def test_without_a_recipe_the_data_choose_it() -> None:
    assert parse_settings(["--data", "digits"]) == parse_settings(["digits"])
    photos = parse_settings(["--data=photos", "--out", "x"])
    assert photos == parse_settings(["folder", "--data", "photos", "--out", "x"])


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 7\noptim: {rate: 0.5}\n")
    words = ["digits", "--config", str(tmp_path / "mine.yaml"), "--optim.lr", "0.25"]
    config = parse_settings(words)
    assert config.batch_size == 256  # the recipe
    assert config.epochs == 7  # the file
    assert config.optim.lr == 0.25  # the word
    assert config.optim.name == "adamw"  # the recipe, inside a group that others touch


def test_python_and_words_mean_the_same() -> None:
    a = settings(
        "digits", {"optim__lr": 0.1, "model": {"head_out_dim": 8}, "augment__area": (0.5, 1)}
    )
    b = parse_settings(
        ["digits", "--optim.lr=0.1", "--model.head_out_dim=8", "--augment.scale=[0.5,1]"]
    )
    assert a == b
    assert a.augment.scale == (0.5, 1.0)


def test_text_that_looks_like_something_else_stays_text() -> None:
    for text in ("1", "true", "null", "[a]", "a: b", "#x", "~/photos"):
        assert settings("digits", {"data": text, "out": text}).data == text


def test_a_written_config_reads_back_equal(tmp_path: Path) -> None:
    from wcl.training.checkpoint import write_config

    config = settings("cifar10", {"out": "runs/1e3", "optim": {"lr": 1e-7}})
    write_config(config, tmp_path / "config.yaml")
    assert parse_settings(["--config", str(tmp_path / "config.yaml")]) == config


def test_a_run_whose_folder_looks_like_a_setting_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wcl.report.runs import read_run
    from wcl.training.checkpoint import write_config

    monkeypatch.chdir(tmp_path)
    config = settings("digits", {"out": "-out", "epochs": 3})
    Path("-out").mkdir()
    write_config(config, Path("-out/config.yaml"))
    assert parse_settings(["--out=-out"], resume=True) == config
    assert read_run("./-out").config == config


def test_setting_names_are_all_of_them() -> None:
    names = setting_names(PretrainConfig)
    assert {"data", "optim.lr", "augment.blur_sigma", "log.every"} <= set(names)
    assert len(names) == len(set(names))


def test_the_papers_settings_for_cifar() -> None:
    config = settings("cifar10")
    assert (config.model.backbone, config.model.stem, config.model.head_layers) == (
        "resnet50",
        "cifar",
        2,
    )
    assert dataclasses.astuple(config.optim) == ("lars", 0.25, "linear", 0.9, 1e-6, 10)
    assert config.augment.scale == (0.2, 1.0)
    assert config.augment.blur == 0
    assert config.loss.temperature == 0.1
    other = settings("cifar100", {"data": "cifar10"})
    same = yaml.safe_load(recipe_file("cifar10").read_text())["augment"]
    assert other.augment.hue == same["hue"]


def test_the_two_heads_and_their_weights_by_default() -> None:
    loss = settings("cifar10").loss
    assert (loss.nce, loss.swap, loss.heads, loss.positives) == (1.0, 0.5, "two", "mean")
    assert loss.key_gradient is True
