"""How fast a run is: of an epoch, and since the last line that was written."""

import time
from typing import Any


class Stopwatch:
    """Counts seconds, those of them that were spent waiting for data, and images."""

    def __init__(self) -> None:
        self.start_epoch()

    def start_epoch(self) -> None:
        """The first line of an epoch begins with it: what was measured before does not count."""
        self._began = self._line_began = time.perf_counter()
        self._line_wait, self._line_images = 0.0, 0
        self._before = self._wait = 0.0  # seconds before the run was resumed, and of waiting
        self._images = 0

    def waited(self, seconds: float) -> None:
        self._wait += seconds
        self._line_wait += seconds

    def passed(self, images: int) -> None:
        self._images += images
        self._line_images += images

    def line(self) -> dict[str, float]:
        """The speed since the last line; the next one begins."""
        now = time.perf_counter()
        found = _speed(now - self._line_began, self._line_wait, self._line_images)
        self._line_began, self._line_wait, self._line_images = now, 0.0, 0
        return found

    def epoch(self) -> dict[str, float]:
        """The time and the speed of the epoch so far."""
        seconds = self._seconds()
        return {"seconds": seconds} | _speed(seconds, self._wait, self._images)

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._began

    def state(self) -> dict[str, Any]:
        return {"seconds": self._seconds(), "wait": self._wait, "images": self._images}

    def resume(self, state: dict[str, Any]) -> None:
        self._before, self._wait = state["seconds"], state["wait"]
        self._images = state["images"]


def _speed(seconds: float, waited: float, images: int) -> dict[str, float]:
    return {"images_per_second": images / seconds, "data_wait": waited / seconds}
