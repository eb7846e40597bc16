"""The process that trains into a run's folder: whether there is one, and how to ask it to stop.

It holds the lock of the folder and has written its number and its host into the folder
(`RunFolder.locked`). Only the lock shows whether it is alive: it ends with the process, the file
does not.
"""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from wcl.system.errors import RunError
from wcl.system.run_folder import RunFolder


class Trainer(NamedTuple):
    """What is known of the process."""

    training: bool
    pid: int | None
    """None if it cannot be stopped from here: it runs elsewhere, or within another program."""


def trainer(folder: Path) -> Trainer:
    """Look who trains into a run's folder."""
    files = RunFolder(folder)
    if not files.is_locked():
        return Trainer(False, None)
    try:
        words = files.trainer.read_text().split()
    except OSError:
        words = []
    here = len(words) == 2 and words[0].isdecimal() and words[1] == socket.gethostname()
    here = here and sys.platform != "win32"  # there SIGTERM ends a process at once
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
