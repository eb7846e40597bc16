"""The process that trains into a run's folder: whether there is one, and how to ask it to stop.

It holds a lock on RUN/.lock and has written there who it is (`RunFolder.locked`). The lock alone
says whether it lives: it ends with the process, what is written does not.
"""

import fcntl
import os
import signal
import socket
from pathlib import Path
from typing import NamedTuple

from wcl.system.errors import RunError


class Trainer(NamedTuple):
    """What is known of the process."""

    training: bool
    pid: int | None
    """None if it cannot be stopped from here: it runs elsewhere, or within another program."""


def trainer(folder: Path) -> Trainer:
    """Look who trains into a run's folder."""
    try:
        with (folder / ".lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return Trainer(False, None)
            except BlockingIOError:
                words = file.read().split()
    except OSError:
        return Trainer(False, None)
    here = len(words) == 2 and words[0].isdecimal() and words[1] == socket.gethostname()
    return Trainer(True, int(words[0]) if here else None)


def ask_to_stop(folder: Path) -> None:
    """Have the run stop after its step and save itself: SIGTERM to the process that trains.

    Raises:
        RunError: nobody trains, or it cannot be asked from here.
    """
    training, pid = trainer(folder)
    if not training:
        raise RunError("it is not being trained")
    if pid is None:
        raise RunError("it is trained elsewhere or by another program; stop it there")
    try:
        _terminate(folder, pid)
    except ProcessLookupError as error:
        raise RunError("it has ended by itself") from error
    except PermissionError as error:
        raise RunError("it is another user's") from error


def _terminate(folder: Path, pid: int) -> None:
    if not hasattr(os, "pidfd_open"):  # not Linux
        os.kill(pid, signal.SIGTERM)
        return
    # What is opened stays this process, even if it ends and another gets its number; that it was
    # the right one is sure if it still trains.
    process = os.pidfd_open(pid)
    try:
        if trainer(folder).pid != pid:
            raise ProcessLookupError
        signal.pidfd_send_signal(process, signal.SIGTERM)
    finally:
        os.close(process)
