"""Training speed, per epoch and between two lines of metrics."""

import time
from typing import Any


class Stopwatch:
    """Counts seconds, the part of them spent waiting for data, and images."""

    def __init__(self) -> None:
        self.start_epoch()

    def start_epoch(self) -> None:
        """Start an epoch and its first line; time since the last epoch does not count."""
        self._epoch_start = self._line_start = time.perf_counter()
        self._line_wait, self._line_images = 0.0, 0
        self._seconds_before = 0.0  # time of this epoch before the run was resumed
        self._wait, self._images = 0.0, 0

    def add_wait(self, seconds: float) -> None:
        self._wait += seconds
        self._line_wait += seconds

    def add_images(self, images: int) -> None:
        self._images += images
        self._line_images += images

    def line(self) -> dict[str, float]:
        """Return the speed since the last line, and start the next one."""
        now = time.perf_counter()
        speed = _speed(now - self._line_start, self._line_wait, self._line_images)
        self._line_start, self._line_wait, self._line_images = now, 0.0, 0
        return speed

    def epoch(self) -> dict[str, float]:
        """Return the time and the speed of the epoch so far."""
        seconds = self._seconds()
        return {"seconds": seconds} | _speed(seconds, self._wait, self._images)

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._epoch_start

    def state(self) -> dict[str, Any]:
        return {"seconds": self._seconds(), "wait": self._wait, "images": self._images}

    def restore(self, state: dict[str, Any]) -> None:
        self._seconds_before, self._wait = state["seconds"], state["wait"]
        self._images = state["images"]


def _speed(seconds: float, wait: float, images: int) -> dict[str, float]:
    return {"images_per_second": images / seconds, "data_wait": wait / seconds}
