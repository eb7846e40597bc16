"""A line of metrics.jsonl, told from one that was cut short or that something else put there."""

import json
from typing import Any

_MOST = 2**53  # steps or epochs; beyond it not every whole number is a float


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


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= _MOST and value == int(value)
