"""Timing things side by side: times here are only ever compared within one run."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from wcl.system.progress import track


def medians(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, called in turn so that a busy moment of the machine hits all alike.

    Each is called once before, unmeasured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in track(range(rounds), f"timing {', '.join(contestants)}"):
        for name, call in contestants.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}
