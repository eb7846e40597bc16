"""Stopping a run by a signal, after the current step."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread

from wcl.distributed.world import World
from wcl.system.signals import stop_signals


class StopRequest:
    """False until a signal asks the run to stop."""

    def __init__(self) -> None:
        self._requested = False
        self._deferred = False

    def __bool__(self) -> bool:
        return self._requested

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let this block finish even if the run is asked to stop at once."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def receive(self, number: int, is_rank_zero: bool) -> None:
        """Handle a signal: a second Ctrl-C stops at once."""
        if self._requested and number == signal.SIGINT and not self._deferred:
            raise KeyboardInterrupt
        self._requested = True
        if is_rank_zero:  # not `print`, which a signal handler must not interrupt
            with suppress(OSError):  # standard error may be closed
                below = b"\n" if os.isatty(2) else b""  # below the progress bar
                os.write(2, below + b"stopping after this step; Ctrl-C again stops at once\n")


@contextmanager
def stop_on_signals(world: World) -> Iterator[StopRequest]:
    """Turn stop signals into a request to stop after the step."""
    stop = StopRequest()

    def handle(number: int, frame: object) -> None:
        stop.receive(number, world.is_rank_zero)

    # Only the main thread may install handlers; a run in another thread is stopped by its owner.
    numbers = stop_signals() if current_thread() is main_thread() else ()
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
