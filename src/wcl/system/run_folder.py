"""The files of a run folder, and the lock that keeps a second process from training into it."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread

from wcl.system.errors import InputError
from wcl.system.paths import expanded

# `is_locked` takes the lock for an instant, so `locked` keeps trying for a moment.
_LOCK_TIMEOUT, _POLL_INTERVAL = 0.12, 0.02  # seconds


class RunFolder:
    """Paths of the files of one run. No other module spells out their names."""

    _holds_lock = False

    def __init__(self, path: str | Path) -> None:
        self.path = expanded(path)
        self.config = self.path / "config.yaml"
        self.provenance = self.path / "provenance.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"
        self.previous_checkpoint = previous_checkpoint(self.checkpoint)
        self.encoder = self.path / "encoder.safetensors"
        self.neighbors = self.path / "neighbors.png"
        self.skipped = self.path / "skipped.txt"
        self.not_finite = self.path / "not_finite.pt"
        self.report = self.path / "report.html"
        self.evaluation = self.path / "evaluation.json"
        self.evaluation_table = self.path / "evaluation.md"
        self.features = self.path / "features"
        self.references = self.path / "references"
        self.lowshot = self.path / "lowshot"
        self.finetune = self.path / "finetune"
        self.export = self.path / "export"
        self.lock = self.path / ".lock"
        self.trainer = self.path / ".trainer"

    @property
    def is_run(self) -> bool:
        """Whether the folder holds anything of a run."""
        return any(file.is_file() for file in (self.config, self.metrics, self.encoder))

    @property
    def is_failed_start(self) -> bool:
        """Whether a run started here and ended before it wrote metrics or a checkpoint.

        The same is true of a run that starts at this moment, which holds the lock.
        """
        return (
            self.config.is_file()
            and self.checkpoint.parent.is_dir()  # otherwise, the settings are not those of a run
            and not any(file.exists() for file in self._results)
        )

    @property
    def _results(self) -> tuple[Path, ...]:
        checkpoints = (self.checkpoint, self.previous_checkpoint)
        return (self.metrics, *checkpoints, self.encoder, self.neighbors)

    def must_be_free(self) -> None:
        """Raise InputError if the folder already holds a run, other than a failed start."""
        if self.is_failed_start:
            return
        if any(file.exists() for file in (self.config, *self._results)):
            raise InputError(
                f"{self.path}: holds a run; continue it with --resume, or choose another --out"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training into the folder.

        The lock ends with the process, however it ends; forked processes do not inherit it
        (filelock closes it in them). The file `trainer` tells `wcl watch` which process to send
        SIGTERM. It is empty if the run is not in the main thread, which alone handles signals. It
        is not the lock itself because Windows does not let others read a locked file. Within the
        context, locking the same RunFolder again has no effect.

        Raises:
            InputError: another process holds the lock.
        """
        from filelock import FileLock, Timeout

        if self._holds_lock:
            yield
            return
        lock = FileLock(self.lock, _LOCK_TIMEOUT, thread_local=False, poll_interval=_POLL_INTERVAL)
        try:
            held = lock.acquire()
        except Timeout as error:
            raise InputError(
                f"{self.path}: another process is training into it; wait for it to end, or choose "
                "another --out"
            ) from error
        with held:
            is_main = current_thread() is main_thread()
            self.trainer.write_text(
                f"{os.getpid()} {socket.gethostname()}\n" if is_main else "", encoding="utf-8"
            )
            self._holds_lock = True
            try:
                yield
            finally:
                del self._holds_lock

    def is_locked(self) -> bool:
        """Return whether a process is training into the folder; reading permission is enough."""
        from filelock import lock_descriptor, unlock_descriptor

        for pause in (_POLL_INTERVAL / 2, 0):
            try:
                with self.lock.open("rb") as file:
                    if lock_descriptor(file.fileno(), blocking=False):
                        unlock_descriptor(file.fileno())
                        return False
            except OSError:  # no lock file: nobody has trained there yet
                return False
            time.sleep(pause)  # it may have been another caller of this method
        return True


def previous_checkpoint(checkpoint: Path) -> Path:
    """Return the path of the checkpoint before the last one."""
    return checkpoint.with_name("previous.ckpt")


def weights_of(path: str | Path) -> Path:
    """Return the file with an encoder's weights: in a run folder, in a hub folder, or itself.

    Raises:
        InputError: there is none.
    """
    place = expanded(path)
    encoder = RunFolder(place).encoder
    files = [encoder, place / "model.safetensors"] if place.is_dir() else [place]
    for file in files:
        if file.is_file():
            return file
    if not place.is_dir():
        raise InputError(f"{path}: no such run; give the folder that wcl pretrain wrote")
    raise InputError(f"{path}: no {encoder.name} there; give a run that has finished an epoch")
