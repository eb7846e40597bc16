"""Parsers made from dataclasses."""

import pytest

from wcl.config import FinetuneConfig
from wcl.config.parser import CommandParser
from wcl.system.errors import InputError


@pytest.mark.parametrize(
    ("words", "distill"),
    [
        (["--distill"], True),
        (["--distill", "--seed", "3"], True),
        (["--distill", "true"], True),
        (["--distill=false"], False),
        ([], False),
    ],
)
def test_a_switch_needs_no_value(words: list[str], distill: bool) -> None:
    assert CommandParser("", FinetuneConfig).parse_args(words).distill is distill


def test_other_values_of_a_switch_are_an_input_error() -> None:
    with pytest.raises(InputError, match="--distill: maybe is not true or false"):
        CommandParser("", FinetuneConfig).parse_args(["--distill", "maybe"])
