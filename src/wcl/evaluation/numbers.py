"""One or several values of a setting."""

from collections.abc import Callable
from typing import TypeVar

from wcl.system.errors import InputError

Number = TypeVar("Number", int, float)


def numbers(
    setting: str, value: Number | list[Number] | str, kind: Callable[[str], Number]
) -> list[Number]:
    """A number, a list, or text with commas, in brackets or not, as a list.

    >>> numbers("k", "10, 20", int), numbers("temperature", 0.1, float)
    ([10, 20], [0.1])

    Raises:
        InputError: it is none of these.
    """
    if not isinstance(value, str):
        return list(value) if isinstance(value, list) else [value]
    parts = [part for part in value.strip("[] ").split(",") if part.strip()]
    try:
        return [kind(part) for part in parts]
    except ValueError as error:
        example = "10 or 10,20" if kind is int else "0.1 or 0.1,0.3"
        raise InputError(f"--{setting}: {value} is not a list such as {example}") from error
