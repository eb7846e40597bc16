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
        self._first_step = 0.0  # its time; 0 if it was before the run was resumed

    def add_wait(self, seconds: float) -> None:
        self._wait += seconds
        self._line_wait += seconds

    def add_images(self, images: int) -> None:
        if not self._images:
            self._first_step = time.perf_counter() - self._epoch_start
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
        seconds = self.seconds()
        return {"seconds": seconds} | _speed(seconds, self._wait, self._images)

    def delay(self, steps: int) -> float:
        """Return how much longer the first of an epoch's steps took than the others on average.

        That of a run's first step is the time to compile the network, or to start the workers.
        """
        others = (self.seconds() - self._first_step) / max(1, steps - 1)
        return max(0.0, self._first_step - others) if steps > 1 else 0.0

    def seconds(self) -> float:
        """Return the time since the epoch began, except for that between stop and resume."""
        return self._seconds_before + time.perf_counter() - self._epoch_start

    def state(self) -> dict[str, Any]:
        return {"seconds": self.seconds(), "wait": self._wait, "images": self._images}

    def restore(self, state: dict[str, Any]) -> None:
        self._seconds_before, self._wait = state["seconds"], state["wait"]
        self._images = state["images"]


def _speed(seconds: float, wait: float, images: int) -> dict[str, float]:
    return {"images_per_second": images / seconds, "data_wait": wait / seconds}
