"""Settings by their dotted names, and in groups."""

from collections.abc import Mapping
from typing import Any


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings in groups by their dotted names.

    >>> flat({"epochs": 3, "optim": {"lr": 0.1}})
    {'epochs': 3, 'optim.lr': 0.1}
    """
    by_name: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict)
        by_name |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return by_name


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their dotted names in groups: the inverse of `flat`.

    >>> nested({"epochs": 3, "optim.lr": 0.1})
    {'epochs': 3, 'optim': {'lr': 0.1}}
    """
    groups: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, setting = name.rpartition(".")
        inner = groups.setdefault(group, {}) if dot else groups
        inner[setting] = value
    return groups
