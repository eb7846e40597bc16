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
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from wcl.system.errors import InputError


@dataclass(frozen=True)
class Bounds:
    """Limits of a number, or of each number of a tuple."""

    least: float = -math.inf
    most: float = math.inf
    is_open: bool = False
    """Whether the number must be more than the least."""
    is_range: bool = False
    """Whether the numbers are the ends of a range, the lower one first."""

    def allow(self, value: float | tuple[float, ...] | None) -> bool:
        """Return whether the value is within the bounds; None always is."""
        if value is None:
            return True
        numbers = value if isinstance(value, tuple | list) else (value,)
        if self.is_range and list(numbers) != sorted(numbers):
            return False
        return all(
            self.least <= number <= self.most and not (self.is_open and number == self.least)
            for number in numbers
        )

    def __str__(self) -> str:
        lower = f"more than {self.least}" if self.is_open else f"at least {self.least}"
        if self.is_range:
            lower = f"[low, high], with low {lower}"
        if self.most == math.inf:
            return lower
        if self.is_range or self.is_open:
            return f"{lower} and {'high ' * self.is_range}at most {self.most}"
        return f"between {self.least} and {self.most}"


def at_least(least: float) -> Bounds:
    return Bounds(least)


def above(least: float) -> Bounds:
    return Bounds(least, is_open=True)


def between(least: float, most: float) -> Bounds:
    return Bounds(least, most)


Count = Annotated[int, at_least(0)]
PositiveCount = Annotated[int, at_least(1)]
Amount = Annotated[float, at_least(0)]
Probability = Annotated[float, between(0, 1)]
PositiveRange = Annotated[tuple[float, float], Bounds(0, is_open=True, is_range=True)]
AreaRange = Annotated[tuple[float, float], Bounds(0, 1, is_open=True, is_range=True)]
OptionalAreaRange = Annotated[tuple[float, float] | None, Bounds(0, 1, is_open=True, is_range=True)]
Seed = Annotated[int, between(0, 2**63 - 1)]
Threads = Annotated[int, between(0, 4096)]
Devices = Annotated[int, between(1, 1024)]
Workers = Annotated[int, between(-1, 1024)]


def check_bounds(settings: Any, prefix: str = "") -> None:
    """Raise InputError for the first setting of a dataclass that is not among its choices.

    The same holds for numbers that are out of bounds or not finite.
    """
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        name, value = f"{prefix}{field.name}", getattr(settings, field.name)
        if is_dataclass(value):
            check_bounds(value, f"{name}.")
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise InputError(f"--{name}: must be a finite number, not {value}")
        hint = hints[field.name]
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise InputError(f"--{name}: {value} is not one of {', '.join(get_args(hint))}")
        for bounds in getattr(hint, "__metadata__", ()):
            if isinstance(bounds, Bounds) and not bounds.allow(value):
                shown = list(value) if isinstance(value, tuple) else value
                raise InputError(f"--{name}: must be {bounds}, not {shown}")
