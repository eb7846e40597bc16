"""Settings with several values, and what is reported of them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from wcl.config.bounds import Bounds
from wcl.system.errors import InputError

Number = TypeVar("Number", int, float)


def setting_values(
    setting: str,
    value: Number | list[Number] | str,
    kind: Callable[[str | Number], Number],
    bounds: Bounds,
) -> list[Number]:
    """Return the values of a setting: a number, a list, or text with commas, in brackets or not.

    >>> setting_values("k", "10, 20", int, Bounds(1))
    [10, 20]

    Raises:
        InputError: there is no such value, or one is out of bounds.
    """
    if isinstance(value, str):
        parts: Sequence[str | Number] = value.strip("[] ").split(",")
    else:
        parts = value if isinstance(value, list) else [value]
    try:
        values = [kind(part) for part in parts]
    except ValueError:
        values = []
    if not values or not all(map(bounds.allow, values)):
        raise InputError(
            f"--{setting}: {value} is not a number or several such as 1,2, each {bounds}"
        )
    return values


def sweep_details(sweep: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the details of a result with several settings, given a row with "top1" for each."""
    if len(sweep) == 1:
        return {}
    return {"sweep": sweep, "best_on_test": max(row["top1"] for row in sweep)}
