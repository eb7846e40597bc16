"""Checkpoints: sealed by a checksum, replaced atomically, and checked against the settings."""

import hashlib
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from wcl.config import PretrainConfig, flat
from wcl.config.run_config import plain_values
from wcl.system.errors import InputError, RunError
from wcl.system.files import fsync
from wcl.system.paths import one_line
from wcl.system.progress import log
from wcl.system.run_folder import previous_checkpoint

_FORMAT = 4
# A checkpoint ends with this word and the SHA-256 of everything before it, which torch ignores.
_SEAL = b"wcl sha256 "
_SEAL_LENGTH = len(_SEAL) + hashlib.sha256().digest_size
_CHUNK = 2**20
# Settings that do not change the results, so they may differ when a run is resumed. (The images
# are compared by their fingerprint, so they may have moved.)
_MAY_DIFFER = {"out", "data", "device", "threads", "num_workers", "save_every", "log"}
_MAY_DIFFER |= {"crops.bank", "crops.cache", "devices", "timeout_minutes"}
_MAY_DIFFER |= {"max_unreadable_fraction"}
# Settings that extend or shorten a run, see `schedule`.
_MAY_DIFFER |= {"epochs", "minutes", "optim.extension"}
# The entries of a checkpoint besides its format and its settings.
_ENTRIES = {
    "step": int,
    "data": str,
    "monitor": dict,
    "neighbor_crops": dict,
    "method": dict,
    "optimizer": dict,
    "precision": dict,
    "random": dict,
}


def check_same_settings(config: PretrainConfig, saved: dict[str, Any], path: Path) -> None:
    """Raise InputError if a run saved with other settings cannot continue with these."""
    # Settings that the saved run does not know had their defaults.
    defaults, new = (flat(plain_values(asdict(each))) for each in (config.defaults(), config))
    old = defaults | flat(saved)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name) and not {name, name.split(".")[0]} & _MAY_DIFFER:
            difference = one_line(f"{name}={old.get(name)}, not {new.get(name)}")
            raise InputError(
                f"{path}: the run was trained with {difference}; resume it without "
                "a recipe or other settings, or start another run with a new --out"
            )


def save_checkpoint(state: dict[str, Any], config: PretrainConfig, path: Path) -> None:
    """Write a checkpoint completely or not at all, and keep the previous one if it is intact.

    Raises:
        RunError: it cannot be written; the earlier checkpoints are unchanged.
    """
    unfinished = path.with_name(path.name + ".tmp")
    try:
        with unfinished.open("wb") as file:
            writer = _SealingWriter(file)
            content = {"format": _FORMAT, "config": plain_values(asdict(config)), **state}
            torch.save(content, cast(BinaryIO, writer))
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
        if _is_intact(path):
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
            unfinished.unlink()  # exists only if something failed


class _SealingWriter:
    """Writes to a file and appends the checksum.

    torch does not survive every error that a file can raise while it writes, so `finish` raises
    the first one.
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
    """Describe, for a message after a failure, whether there is a checkpoint to continue from."""
    intact = any(map(_is_intact, (path, previous_checkpoint(path))))
    return "the last good checkpoint is intact" if intact else "there is no good checkpoint"


def _is_intact(path: Path) -> bool:
    """Return whether a file ends with the checksum of its content."""
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
    """Read a checkpoint of a run with these settings, or the previous one if it is damaged.

    Nothing in the file is executed.

    Returns:
        The saved state; None if the run ended before its first checkpoint.

    Raises:
        InputError: neither is a checkpoint, or they belong to other settings.
    """
    files = [file for file in (path, previous_checkpoint(path)) if file.is_file()]
    if not files:
        return None
    for file in files:
        state = _read(file)
        if state is not None:
            check_same_settings(config, state["config"], file)
            if file != path:
                problem = "damaged" if path in files else "missing"
                log(f"{path}: {problem}; using {file.name} instead, of step {state['step']}")
            return state
    others = f", and neither is {files[1].name}" if len(files) > 1 else ""
    raise InputError(
        f"{files[0]}: not a checkpoint of wcl, or a damaged one{others}; start another run with a "
        "new --out"
    )


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a checkpoint; None if it is damaged or something else.

    Raises:
        InputError: it was written by another version of wcl.
    """
    if not _is_intact(path):
        return None
    try:
        mmap = sys.platform != "win32"  # where a mapped file cannot be replaced
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
        if state["format"] != _FORMAT:
            raise InputError(
                f"{path}: a checkpoint of another version of wcl; resume with that version, or "
                "start another run with a new --out"
            )
        is_valid = isinstance(state["config"], dict) and all(
            isinstance(state[name], kind) for name, kind in _ENTRIES.items()
        )
    except InputError:
        raise
    except Exception:  # torch's unpickler fails in many ways
        return None
    return state if is_valid else None
