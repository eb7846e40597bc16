"""Stopping a run by a signal: after the current step, or at once if it has nothing to save.

Python handles a signal between two of its own instructions. The backward pass of a step is one
instruction, which may take minutes; so a thread watches for signals as well, and ends a process
that cannot stop by itself.
"""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread, current_thread, main_thread

from wcl.distributed.world import World
from wcl.system.signals import stop_signals

# Seconds after SIGTERM until the process is ended: without and with results that are not saved.
# Ctrl-C never ends it like that: in a notebook it must not take all other variables with it.
_GRACE, _GRACE_TO_SAVE = 3.0, 300.0
_STOPPED = 130  # exit status, as a shell reports Ctrl-C


class StopRequest:
    """False until a signal asks the run to stop after its step.

    Args:
        remedy: how to continue the run, for messages.
    """

    def __init__(self, remedy: str = "") -> None:
        self.unsaved = False
        """Whether a step was taken since the start or the last checkpoint."""
        self._remedy = remedy
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
        """Handle a signal: stop at once if nothing is lost, or at a second Ctrl-C.

        Raises:
            KeyboardInterrupt: the run stops at once.
        """
        again = self._requested and number == signal.SIGINT
        at_once = not self._deferred and (again or not self.unsaved)
        self._requested = True
        if is_rank_zero and at_once:
            _write(f"stopping at once{self._remedy}")
        elif is_rank_zero:
            _write("stopping after this step; Ctrl-C again stops at once")
        if at_once:
            raise KeyboardInterrupt

    def watch(self, receiver: socket.socket) -> None:
        """End the process some time after a signal arrives, unless the other end is shut down."""
        numbers = {*stop_signals()} - {signal.SIGINT}
        with receiver:
            while (byte := receiver.recv(1)) and byte[0] not in numbers:
                pass
            deadline = time.monotonic() + (_GRACE_TO_SAVE if self.unsaved else _GRACE)
            while byte and (self._deferred or time.monotonic() < deadline):
                receiver.settimeout(max(0.1, deadline - time.monotonic()))
                with suppress(TimeoutError):
                    byte = receiver.recv(1)
        if byte:
            _write(f"the step did not end in time; stopped without it{self._remedy}")
            os._exit(_STOPPED)


def _write(message: str) -> None:
    """Write a line to standard error; not by `print`, which a signal handler must not interrupt."""
    with suppress(OSError):  # standard error may be closed
        below = "\n" if os.isatty(2) else ""  # below the progress bar
        os.write(2, f"{below}{message}\n".encode())


@contextmanager
def stop_on_signals(world: World, remedy: str = "") -> Iterator[StopRequest]:
    """Turn stop signals into a request to stop after the step, or at once.

    Args:
        world: the processes; rank 0 writes messages.
        remedy: how to continue the run, for messages.
    """
    stop = StopRequest(remedy)
    # Only the main thread may install handlers; a run in another thread is stopped by its owner.
    if current_thread() is not main_thread():
        yield stop
        return

    def handle(number: int, frame: object) -> None:
        stop.receive(number, world.is_rank_zero)

    sender, receiver = socket.socketpair()
    sender.setblocking(False)
    Thread(target=stop.watch, args=(receiver,), daemon=True).start()
    wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, handle) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        sender.shutdown(socket.SHUT_RDWR)  # forked processes keep it open
        sender.close()
