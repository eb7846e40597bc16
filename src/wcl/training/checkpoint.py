"""What a run is on disk: its folder, its settings, and checkpoints that resume exactly."""

import fcntl
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, BinaryIO, TextIO, cast

import torch
import yaml

from wcl.config import PretrainConfig, flat
from wcl.system.errors import UNMAKEABLE, InputError, RunError
from wcl.system.files import atomic_write, fsync
from wcl.system.paths import expanded, one_line
from wcl.system.progress import console

_FORMAT = 3
# A checkpoint ends with this word and the SHA-256 of all that is before it; torch reads over it.
_SEAL = b"wcl sha256 "
_SEAL_LENGTH = len(_SEAL) + hashlib.sha256().digest_size
_CHUNK = 2**20
# Seconds between tries for the lock of a run: who looks whether it is held has it for an instant.
_PATIENCE = (0.02, 0.1, 0)
# Settings that may differ when a run is resumed: they do not change what is computed.
# (The images are compared with those of the run by themselves, wherever they lie now.)
_FREE_ON_RESUME = {"out", "data", "device", "threads", "num_workers", "save_every", "log"}
_FREE_ON_RESUME |= {"crops.bank", "crops.cache", "devices", "wait", "max_unreadable_fraction"}


# What a checkpoint has besides its format and its settings.
_PARTS = {
    "step": int,
    "data": str,
    "monitor": dict,
    "neighborhood": dict,
    "encoder": dict,
    "optimizer": dict,
    "precision": dict,
    "random": dict,
}


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = expanded(path)
        self.config = self.path / "config.yaml"
        self.provenance = self.path / "provenance.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"
        self.previous = _previous(self.checkpoint)
        self.encoder = self.path / "encoder.safetensors"
        self.neighbors = self.path / "neighbors.png"
        self.skipped = self.path / "skipped.txt"
        self.not_finite = self.path / "not_finite.pt"

    def must_be_free(self) -> None:
        """Raise InputError if the folder holds a run already."""
        files = (self.config, self.metrics, self.checkpoint, self.previous, self.encoder)
        if any(file.exists() for file in (*files, self.neighbors)):
            raise InputError(
                f"{self.path}: holds a run; continue it with --resume, or choose another --out"
            )

    def create(self, config: PretrainConfig) -> None:
        """Make the folder and write the settings down.

        Raises:
            InputError: the folder cannot be made, or another run was quicker.
        """
        try:
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            with self.locked():  # of two runs that start at once, one is told
                self.must_be_free()
                write_config(config, self.config)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written to ({error.strerror})") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training into the folder; the lock ends with the process.

        It is no matter what becomes of processes that this one starts: see `_let_go`. The file says
        who may be sent SIGTERM, for `wcl watch`: only the main thread takes that as a wish to stop.

        Raises:
            InputError: one does so already.
        """
        with (self.path / ".lock").open("a") as file:
            for patience in _PATIENCE:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if not patience:
                        raise InputError(
                            f"{self.path}: another process is training into it; wait for it to "
                            "end, or choose another --out"
                        ) from error
                    time.sleep(patience)
            file.truncate(0)
            if current_thread() is main_thread():
                file.write(f"{os.getpid()} {socket.gethostname()}\n")
                file.flush()
            _held.add(file)
            try:
                yield
            finally:
                _held.discard(file)


_held: set[TextIO] = set()


def _let_go() -> None:
    """Close the inherited locks in a forked process, such as one that decodes photos.

    Whoever has the file open keeps the lock (`flock`), and a process that decodes outlives one that
    was killed by some seconds. Closing it there leaves the lock to its owner. (Locks of `lockf` are
    not inherited, but they do not keep two runs of one process apart, and end as soon as anything
    in the process opens the file and closes it.)
    """
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


def must_match(config: PretrainConfig, saved: dict[str, Any], path: Path) -> None:
    """Raise InputError if the settings would not continue the run that was saved with others."""
    if different := _differences(saved, config):
        name, old, new = different[0]
        raise InputError(
            f"{path}: the run was made with {one_line(f'{name}={old}, not {new}')}; resume it with "
            "the same settings, or start another run with a new --out"
        )


def read_config(path: Path) -> dict[str, Any]:
    """The settings that a run wrote down, unchecked.

    Raises:
        InputError: they are not there, or no settings.
    """
    try:
        settings = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, *UNMAKEABLE) as error:
        raise InputError(f"{path}: cannot be read ({one_line(str(error))})") from error
    if not isinstance(settings, dict):
        raise InputError(f"{path}: has no settings of a run")
    return settings


def write_config(config: PretrainConfig, path: Path) -> None:
    with atomic_write(path) as unfinished, unfinished.open("w") as file:
        yaml.safe_dump(_plain(asdict(config)), file, sort_keys=False, allow_unicode=True)


def save_checkpoint(state: dict[str, Any], config: PretrainConfig, path: Path) -> None:
    """Write a checkpoint whole or not at all, and keep the one before it as `previous.ckpt`.

    Nothing is moved before the new one is on the disk. One that is damaged is not kept.

    Raises:
        RunError: it cannot be written; what was there before is as it was.
    """
    unfinished = path.with_name(path.name + ".tmp")
    try:
        with unfinished.open("wb") as file:
            sealed = _Sealed(file)
            content = {"format": _FORMAT, "config": _plain(asdict(config)), **state}
            torch.save(content, cast(BinaryIO, sealed))
            sealed.finish()
            file.flush()
            os.fsync(file.fileno())
        if _is_whole(path):
            path.replace(_previous(path))
        unfinished.replace(path)
        fsync(path.parent)
    except OSError as error:
        raise RunError(
            f"{path}: the checkpoint could not be saved ({error.strerror}); {what_is_left(path)}; "
            "when that is mended, go on with --resume"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()  # is there only if something failed, and may fill the disk


class _Sealed:
    """What torch writes, on its way into a file, where its digest is put behind it.

    torch does not survive every error that a file can raise while it writes: the first one is kept
    until `finish`.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._error: OSError | None = None

    def write(self, part: bytes | memoryview) -> int:
        if self._error is None:
            try:
                self._file.write(part)
            except OSError as error:
                self._error = error
            self._digest.update(part)
        return memoryview(part).nbytes

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        if self._error is not None:
            raise self._error
        self._file.write(_SEAL + self._digest.digest())


def what_is_left(path: Path) -> str:
    """After a failure: whether there is a checkpoint to go on from, in words."""
    intact = any(map(_is_whole, (path, _previous(path))))
    return "the last good checkpoint is intact" if intact else "there is no good checkpoint"


def _previous(path: Path) -> Path:
    return path.with_name("previous.ckpt")


def _is_whole(path: Path) -> bool:
    """Whether every byte is as it was written, by the digest at the end."""
    try:
        with path.open("rb") as file:
            left = file.seek(0, os.SEEK_END) - _SEAL_LENGTH
            if left < 0:
                return False
            file.seek(0)
            digest = hashlib.sha256()
            while left and (part := file.read(min(left, _CHUNK))):
                digest.update(part)
                left -= len(part)
            return file.read() == _SEAL + digest.digest()
    except OSError:
        return False


def load_checkpoint(path: Path, config: PretrainConfig) -> dict[str, Any] | None:
    """Read a checkpoint of a run with these settings, or the one before it if it is damaged.

    Nothing in the file is executed.

    Returns:
        What was saved, or None if the run ended before its first checkpoint.

    Raises:
        InputError: neither is a checkpoint, or they belong to other settings.
    """
    files = [file for file in (path, _previous(path)) if file.is_file()]
    if not files:
        return None
    for file in files:
        state = _read(file)
        if state is None:
            continue
        must_match(config, state["config"], file)
        if file != path:
            what = "damaged" if path in files else "missing"
            console().print(
                f"{path}: {what}; going on from the checkpoint before it, step {state['step']}",
                markup=False,
                soft_wrap=True,
            )
        return state
    others = f", and neither is {files[1].name}" if len(files) > 1 else ""
    raise InputError(
        f"{files[0]}: not a checkpoint of wcl, or a damaged one{others}; start anew with another "
        "--out"
    )


def _read(path: Path) -> dict[str, Any] | None:
    """What is in a checkpoint, or None if it is none or damaged.

    Raises:
        InputError: it is of another version.
    """
    if not _is_whole(path):
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if state["format"] != _FORMAT:
            raise InputError(f"{path}: a checkpoint of another version of wcl")
        fits = isinstance(state["config"], dict) and all(
            isinstance(state[name], kind) for name, kind in _PARTS.items()
        )
    except InputError:
        raise
    except Exception:  # torch's reader of pickles fails in many ways
        return None
    return state if fits else None


def _differences(saved: dict[str, Any], config: PretrainConfig) -> list[tuple[str, Any, Any]]:
    # A run of an older version had what is the default of settings that it did not know.
    defaults, new = (flat(_plain(asdict(settings))) for settings in (config.defaults(), config))
    old = defaults | flat(saved)
    return [
        (name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and not {name, name.split(".")[0]} & _FREE_ON_RESUME
    ]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, so that what is written equals what is read back."""
    return {
        name: _plain(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
    }
