"""A run on disk: its settings, and checkpoints that resume exactly."""

import hashlib
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from wcl.config import PretrainConfig, flat
from wcl.config.run_config import plain_values, write_config
from wcl.system.errors import InputError, RunError
from wcl.system.files import fsync
from wcl.system.paths import one_line
from wcl.system.progress import console
from wcl.system.run_folder import RunFolder, previous_checkpoint

_FORMAT = 4
# A checkpoint ends with this word and the SHA-256 of all that is before it; torch reads over it.
_SEAL = b"wcl sha256 "
_SEAL_LENGTH = len(_SEAL) + hashlib.sha256().digest_size
_CHUNK = 2**20
# Settings that may differ when a run is resumed: they do not change what is computed.
# (The images are compared with those of the run by themselves, wherever they lie now.)
_FREE_ON_RESUME = {"out", "data", "device", "threads", "num_workers", "save_every", "log"}
_FREE_ON_RESUME |= {
    "crops.bank",
    "crops.cache",
    "devices",
    "timeout_minutes",
    "max_unreadable_fraction",
}


# What a checkpoint has besides its format and its settings.
_PARTS = {
    "step": int,
    "data": str,
    "monitor": dict,
    "neighbor_crops": dict,
    "method": dict,
    "optimizer": dict,
    "precision": dict,
    "random": dict,
}


def create_run(folder: RunFolder, config: PretrainConfig) -> None:
    """Make the folder of a new run and write its settings.

    Raises:
        InputError: the folder cannot be made, or another run started there first.
    """
    try:
        folder.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        with folder.locked():  # if two runs start at once, one is refused
            folder.must_be_free()
            write_config(config, folder.config)
    except OSError as error:
        raise InputError(f"{folder.path}: cannot be written to ({error.strerror})") from error


def must_match(config: PretrainConfig, saved: dict[str, Any], path: Path) -> None:
    """Raise InputError if the settings would not continue the run that was saved with others."""
    if different := _differences(saved, config):
        name, old, new = different[0]
        raise InputError(
            f"{path}: the run was made with {one_line(f'{name}={old}, not {new}')}; resume it with "
            "the same settings, or start another run with a new --out"
        )


def save_checkpoint(state: dict[str, Any], config: PretrainConfig, path: Path) -> None:
    """Write a checkpoint whole or not at all, and keep the one before it.

    Nothing is moved before the new one is on the disk. One that is damaged is not kept.

    Raises:
        RunError: it cannot be written; what was there before is as it was.
    """
    unfinished = path.with_name(path.name + ".tmp")
    try:
        with unfinished.open("wb") as file:
            sealed = _Sealed(file)
            content = {"format": _FORMAT, "config": plain_values(asdict(config)), **state}
            torch.save(content, cast(BinaryIO, sealed))
            sealed.finish()
            file.flush()
            os.fsync(file.fileno())
        if _is_whole(path):
            path.replace(previous_checkpoint(path))
        unfinished.replace(path)
        fsync(path.parent)
    except OSError as error:
        raise RunError(
            f"{path}: the checkpoint could not be saved ({error.strerror}); "
            f"{checkpoint_status(path)}; fix this, then continue with --resume"
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


def checkpoint_status(path: Path) -> str:
    """Return, for a message after a failure, whether there is a checkpoint to continue from."""
    intact = any(map(_is_whole, (path, previous_checkpoint(path))))
    return "the last good checkpoint is intact" if intact else "there is no good checkpoint"


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
    files = [file for file in (path, previous_checkpoint(path)) if file.is_file()]
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
        mmap = sys.platform != "win32"  # there a mapped file cannot be replaced by the next one
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
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
    defaults, new = (flat(plain_values(asdict(one))) for one in (config.defaults(), config))
    old = defaults | flat(saved)
    return [
        (name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and not {name, name.split(".")[0]} & _FREE_ON_RESUME
    ]
