"""The process that trains a run: whether there is one, and how to ask it to stop.

It holds the lock of the run folder and has written its process ID and host into the folder
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
    """Whether a process trains the run, and which."""

    training: bool
    pid: int | None
    """None if it cannot be stopped from here: on another machine, or inside another program."""


def trainer(folder: Path) -> Trainer:
    """Return the process that trains the run in a folder."""
    files = RunFolder(folder)
    if not files.is_locked():
        return Trainer(False, None)
    words = files.trainer.read_text(encoding="utf-8").split() if files.trainer.exists() else []
    # Windows ends a process at SIGTERM without letting it save itself.
    stoppable = words[1:] == [socket.gethostname()] and sys.platform != "win32"
    return Trainer(True, int(words[0]) if stoppable else None)


def ask_to_stop(folder: Path) -> None:
    """Send SIGTERM to the process that trains the run: it saves itself after the current step.

    Raises:
        RunError: no process trains the run, or it cannot be stopped from here.
    """
    training, pid = trainer(folder)
    if not training:
        raise RunError("the run is not training")
    if pid is None:
        raise RunError(
            "the run is training on another machine or inside another program; stop it there"
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:  # it has just ended, or belongs to another user
        raise RunError(f"the run cannot be stopped ({error.strerror})") from error
