"""Hints at the setting that a user meant."""

from pathlib import Path

import pytest

from wcl.config import LinearConfig, PretrainConfig
from wcl.config.layering import settings, settings_parser
from wcl.config.parser import CommandParser
from wcl.methods import method_settings
from wcl.system.errors import InputError


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--lr", "--optim.lr"),
        ("--learning-rate", "--optim.lr"),
        ("--pretrained", "--model.weights timm"),
        ("--batch-size", "--batch_size"),
        ("--temperature", "--loss.temperature"),
        ("--wd", "--optim.weight_decay"),
        ("--weight_decay", "--optim.weight_decay"),
        ("--weight-decay", "--optim.weight_decay"),
        ("--arch", "--model.backbone"),
        ("--backbone", "--model.backbone"),
        ("--workers", "--num_workers"),
        ("--scale", "--augment.scale or --crops.scale"),
    ],
)
def test_the_words_of_other_programs_name_the_setting(word: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        settings_parser(PretrainConfig).parse_args([word, "1"])
    assert str(caught.value) == f"{word}: no such setting; use {meant}"


def test_only_settings_of_the_command_are_named() -> None:
    parser = CommandParser("", LinearConfig)
    with pytest.raises(InputError, match="use --num_workers"):
        parser.parse_args(["--workers", "1"])
    with pytest.raises(InputError, match="--wd: no such setting; --help"):
        parser.parse_args(["--wd", "1"])


def test_a_file_is_told_a_name_without_dashes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("learning_rate: 1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"learning_rate: no such setting; use optim\.lr$"):
        settings("", {}, method_settings, files=[tmp_path / "mine.yaml"])
