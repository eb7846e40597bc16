"""Speeds are of the time that they are said to be of."""

import time

import pytest

from wcl.training.monitor.stopwatch import Stopwatch


def test_the_first_line_of_an_epoch_counts_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([0.0, 1.0, 2.0, 2.0, 100.0, 104.0, 104.0, 104.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    watch = Stopwatch()
    watch.add_images(8)
    assert watch.line()["images_per_second"] == 4
    assert watch.epoch() == {"seconds": 2.0, "images_per_second": 4.0, "data_wait": 0.0}
    watch.start_epoch()  # after 98 seconds of evaluation
    watch.add_wait(1.0)
    watch.add_images(8)
    assert watch.line() == {"images_per_second": 2.0, "data_wait": 0.25}
    assert watch.epoch()["images_per_second"] == 2


def test_the_delay_of_an_epoch_is_that_of_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    watch = Stopwatch()
    for seconds in (30.0, 2.0, 1.0, 3.0):
        clock[0] += seconds
        watch.add_images(8)
    assert watch.delay(4) == 30.0 - 2.0
    resumed = Stopwatch()
    resumed.restore(watch.state())
    resumed.add_images(8)
    assert resumed.delay(5) == 0.0
    assert resumed.seconds() == 36.0
