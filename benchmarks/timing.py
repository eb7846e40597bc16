"""Timing of alternatives in turn; times are only compared within one run."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from wcl.system.progress import track


def medians(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each call.

    Calls alternate, so that other load on the machine affects all of them alike. Each is called
    once before, unmeasured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in track(range(rounds), f"timing {', '.join(calls)}"):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}
