"""Reading and writing metrics.jsonl: one JSON object per line, each with a step and an epoch."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig
from wcl.system.files import atomic_write, fsync
from wcl.system.run_folder import RunFolder
from wcl.training.curves import curve_writers

_LARGEST_VALUE = 1e100  # sums of such numbers are still finite
_LARGEST_COUNT = 2**53  # floats represent every integer up to this one


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the intact lines of metrics.jsonl; none if the file does not exist."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    return [values for line in lines if (values := _parse(line)) is not None]


def is_number(value: Any) -> bool:
    """Return whether a value can be plotted and summed."""
    return type(value) in (int, float) and abs(value) <= _LARGEST_VALUE


class MetricsFile:
    """Writer of a run's metrics.jsonl, and of the same values as TensorBoard and W&B curves."""

    def __init__(self, folder: RunFolder, config: PretrainConfig) -> None:
        self._folder = folder
        self._config = config

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        """Allow writing within the context, after the lines up to a step."""
        drop_lines_after(self._folder.metrics, step)
        with ExitStack() as stack:
            writers = curve_writers(self._folder.path, self._config, step)
            self._curves = [stack.enter_context(closing(writer)) for writer in writers]
            yield

    def write(self, values: dict[str, Any]) -> None:
        with self._folder.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        for curve in self._curves:
            curve.write(values)

    def fsync(self) -> None:
        """Make the lines survive a power cut."""
        if self._folder.metrics.exists():
            fsync(self._folder.metrics)


def drop_lines_after(path: Path, step: int) -> None:
    """Remove the lines of later steps, which will be repeated, and damaged lines.

    The other lines stay byte for byte. Before the first step, all lines will be repeated.
    """
    if not path.exists():
        return
    lines = [(line, _parse(line)) for line in path.read_bytes().splitlines()]
    kept = [line for line, values in lines if step and values and values["step"] <= step]
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(b"".join(line + b"\n" for line in kept))


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the values of a line; None if it is damaged or was not written by a run."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_line = isinstance(values, dict) and _is_count(values.get("step"), values.get("epoch"))
    return values if is_line else None


def _is_count(*values: Any) -> bool:
    return all(
        isinstance(value, int | float) and 0 <= value <= _LARGEST_COUNT and value == int(value)
        for value in values
    )
