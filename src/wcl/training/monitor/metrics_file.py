"""metrics.jsonl, and the curves that others draw besides."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig
from wcl.system.files import atomic_write, fsync
from wcl.system.run_folder import RunFolder
from wcl.training.curves import curve_writers
from wcl.training.metrics_lines import parse_line


class MetricsFile:
    """One JSON object per line, each of which has a `step`."""

    def __init__(self, folder: RunFolder, config: PretrainConfig) -> None:
        self._folder = folder
        self._config = config

    @contextmanager
    def opened(self, step: int) -> Iterator[None]:
        """Go on after that step, as long as the context lasts."""
        keep_lines_until(self._folder.metrics, step)
        with ExitStack() as curves:
            self._curves = curve_writers(self._folder.path, self._config, step)
            for curve in self._curves:
                curves.callback(curve.close)
            yield

    def write(self, values: dict[str, Any]) -> None:
        with self._folder.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        for curve in self._curves:
            curve.write(values)

    def fsync(self) -> None:
        """Have the lines survive a power cut."""
        if self._folder.metrics.exists():
            fsync(self._folder.metrics)


def keep_lines_until(path: Path, step: int) -> None:
    """Drop the lines of steps that will be taken again, and what is no line of a run.

    The others stay byte for byte.
    """
    if not path.exists():
        return
    lines = [(line, parse_line(line)) for line in path.read_bytes().splitlines()]
    kept = [line for line, values in lines if values is not None and values["step"] <= step]
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(b"".join(line + b"\n" for line in kept))
