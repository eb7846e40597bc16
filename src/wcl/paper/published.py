"""The figures that the paper prints, from `figures.yaml`."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def published(source: str) -> dict[str, Any]:
    """Return a table of the paper: caption, columns, rows, gains, notes."""
    tables = yaml.safe_load((Path(__file__).parent / "figures.yaml").read_text(encoding="utf-8"))
    table: dict[str, Any] = tables[source]
    return table


def published_figure(source: str, row: str, column: str) -> float | None:
    """Return one figure of the paper; None if the paper leaves it out."""
    table = published(source)
    value: float | None = table["rows"][row][table["columns"].index(column)]
    return value
