"""What a run is on disk: its folder, its settings, and checkpoints that resume exactly."""

import fcntl
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml

from wcl.config import PretrainConfig, flat
from wcl.errors import InputError
from wcl.paths import expanded

_FORMAT = 2
# Settings that may differ when a run is resumed: they do not change what is computed.
# (The images are compared with those of the run by themselves, wherever they lie now.)
_FREE_ON_RESUME = {"out", "data", "device", "threads", "workers", "save_every", "log"}
_FREE_ON_RESUME |= {"crops.bank", "crops.cache"}


# What a checkpoint has besides its format and its settings.
_PARTS = {
    "step": int,
    "data": str,
    "monitor": dict,
    "neighbourhood": dict,
    "encoder": dict,
    "optimiser": dict,
    "precision": dict,
    "random": torch.Tensor,
}


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = expanded(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"
        self.encoder = self.path / "encoder.safetensors"
        self.neighbours = self.path / "neighbours.png"

    def must_be_free(self) -> None:
        """Raise InputError if the folder holds a run already."""
        files = (self.config, self.metrics, self.checkpoint, self.encoder, self.neighbours)
        if any(file.exists() for file in files):
            raise InputError(
                f"{self.path}: holds a run; continue it with --resume, or choose another --out"
            )

    def create(self, config: PretrainConfig) -> None:
        """Make the folder and write the settings down.

        Raises:
            InputError: the folder cannot be made.
        """
        try:
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            write_config(config, self.config)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written to ({error.strerror})") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training into the folder; the lock ends with the process.

        Raises:
            InputError: one does so already.
        """
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"{self.path}: another process is training into it; wait for it to end, or "
                    "choose another --out"
                ) from error
            yield


def must_match(config: PretrainConfig, saved: dict[str, Any], path: Path) -> None:
    """Raise InputError if the settings would not continue the run that was saved with others."""
    if different := _differences(saved, _plain(asdict(config))):
        name, old, new = different[0]
        raise InputError(
            f"{path}: the run was made with {name}={old}, not {new}; resume it with the same "
            "settings, or start another run with a new --out"
        )


def write_config(config: PretrainConfig, path: Path) -> None:
    with path.open("x") as file:  # of two runs that start at once, one is told
        yaml.safe_dump(_plain(asdict(config)), file, sort_keys=False, allow_unicode=True)


def save_checkpoint(state: dict[str, Any], config: PretrainConfig, path: Path) -> None:
    """Write a checkpoint whole or not at all: beside the old one, onto the disk, in its place."""
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        torch.save({"format": _FORMAT, "config": _plain(asdict(config)), **state}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_checkpoint(path: Path, config: PretrainConfig) -> dict[str, Any] | None:
    """Read a checkpoint of a run with these settings. Nothing in the file is executed.

    Returns:
        What was saved, or None if the run ended before its first checkpoint.

    Raises:
        InputError: the file is not a checkpoint, or belongs to other settings.
    """
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        saved = state["config"]
        if state["format"] != _FORMAT:
            raise InputError(f"{path}: a checkpoint of another version of wcl")
        if not all(isinstance(state[name], kind) for name, kind in _PARTS.items()):
            raise TypeError
    except (
        RuntimeError,
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a checkpoint of wcl, or a damaged one") from error
    must_match(config, saved, path)
    return state


def _differences(saved: dict[str, Any], given: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    old, new = flat(saved), flat(given)
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
