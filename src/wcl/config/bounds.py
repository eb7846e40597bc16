"""Bounds of numbers, written beside the settings that they limit.

>>> from typing import Annotated
>>> @dataclass
... class Mine:
...     temperature: Annotated[float, above(0)] = 0.1
>>> check_bounds(Mine(temperature=0), "loss.")
Traceback (most recent call last):
wcl.system.errors.InputError: --loss.temperature: must be more than 0, not 0
"""

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from wcl.system.errors import InputError


@dataclass(frozen=True)
class Bounds:
    """The least and the most that a number may be."""

    least: float = -math.inf
    most: float = math.inf
    is_open: bool = False
    """Whether the number must be more than the least."""

    def fit(self, value: float) -> bool:
        return self.least <= value <= self.most and not (self.is_open and value == self.least)

    def __repr__(self) -> str:
        lower = f"{'more than' if self.is_open else 'at least'} {self.least:g}"
        upper = f"at most {self.most:g}"
        known = [text for text in (lower, upper) if "inf" not in text]
        return " and ".join(known)


def at_least(least: float) -> Bounds:
    return Bounds(least)


def above(least: float) -> Bounds:
    return Bounds(least, is_open=True)


def between(least: float, most: float) -> Bounds:
    return Bounds(least, most)


def check_bounds(settings: Any, prefix: str = "") -> None:
    """Raise InputError for the first number of a dataclass that is out of bounds or not finite."""
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        name, value = f"{prefix}{field.name}", getattr(settings, field.name)
        if is_dataclass(value):
            check_bounds(value, f"{name}.")
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise InputError(f"--{name}: must be a finite number, not {value}")
        for bounds in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(bounds, Bounds) and not bounds.fit(value):
                raise InputError(f"--{name}: must be {bounds}, not {value}")
