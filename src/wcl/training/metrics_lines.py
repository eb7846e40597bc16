"""The lines of metrics.jsonl, told from what was cut short or what something else put there."""

import json
from pathlib import Path
from typing import Any

_LARGEST = 1e100  # no run comes near it, and sums of such numbers are finite still
_MOST = 2**53  # steps or epochs; beyond it not every whole number is a float


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are whole; none if there is no such file."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    return [values for line in lines if (values := parse_line(line)) is not None]


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The values of a line, or None if no run can have written it.

    Those of a run have a `step`, and those of an epoch an `epoch`: whole numbers. A line may have
    anything else besides.
    """
    try:
        values = json.loads(line.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not _is_count(values.get("step")):
        return None
    with_epoch = "epoch" in values or values.get("kind") == "epoch"
    return None if with_epoch and not _is_count(values.get("epoch")) else values


def is_number(value: Any) -> bool:
    """Whether something can be drawn and added up."""
    is_of_numbers = isinstance(value, int | float) and not isinstance(value, bool)
    return is_of_numbers and abs(value) <= _LARGEST


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= _MOST and value == int(value)
