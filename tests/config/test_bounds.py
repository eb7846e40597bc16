"""Bounds of numbers, and the messages about values outside them."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest

from wcl.config.bounds import (
    AreaRange,
    Bounds,
    PositiveRange,
    Probability,
    above,
    at_least,
    between,
    check_bounds,
)
from wcl.system.errors import InputError


@dataclass
class Inner:
    temperature: Annotated[float, above(0)] = 0.1


@dataclass
class Settings:
    flip: Probability = 0.5
    count: Annotated[int, at_least(1)] = 1
    scale: AreaRange = (0.2, 1.0)
    ratio: PositiveRange = (0.75, 1.33)
    std: Annotated[tuple[float, ...], above(0)] = (0.2, 0.2)
    free: float = 0
    loss: Any = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        (at_least(0), [0, 0.5, 1e9], [-1, -1e-9]),
        (above(0), [1e-9, 1], [0, -1]),
        (between(2, 4), [2, 3, 4], [1.99, 4.01]),
        (Bounds(0, 1, is_open=True, is_range=True), [(0.1, 1), (1, 1)], [(0, 1), (1, 0.1)]),
    ],
)
def test_the_ends_belong_to_the_bounds_unless_they_are_open(
    bounds: Bounds, inside: list[Any], outside: list[Any]
) -> None:
    assert all(map(bounds.allow, inside))
    assert not any(map(bounds.allow, outside))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flip": 1.5}, "--flip: must be between 0 and 1, not 1.5"),
        ({"count": 0}, "--count: must be at least 1, not 0"),
        (
            {"scale": (1.0, 0.2)},
            "--scale: must be [low, high], with low more than 0 and high at most 1, not [1.0, 0.2]",
        ),
        ({"ratio": (0, 2)}, "--ratio: must be [low, high], with low more than 0, not [0, 2]"),
        ({"std": (0.2, 0.0)}, "--std: must be more than 0, not [0.2, 0.0]"),
        ({"free": math.inf}, "--free: must be a finite number, not inf"),
        ({"scale": (math.nan, 1.0)}, "--scale: must be a finite number, not (nan, 1.0)"),
        ({"loss": Inner(0)}, "--loss.temperature: must be more than 0, not 0"),
    ],
)
def test_a_number_out_of_bounds_is_named(changes: dict[str, Any], message: str) -> None:
    check_bounds(Settings())
    with pytest.raises(InputError) as error:
        check_bounds(Settings(**changes))
    assert str(error.value) == message
