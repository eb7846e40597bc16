"""What a run is on disk: its folder, its settings, and checkpoints that resume exactly."""

import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml

from wcl.config import PretrainConfig, flat
from wcl.errors import InputError

_FORMAT = 1
# Settings that may differ when a run is resumed: they do not change what is computed.
_FREE_ON_RESUME = {"out", "device", "threads", "workers", "save_every", "log"}


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"
        self.encoder = self.path / "encoder.safetensors"

    def must_be_free(self) -> None:
        """Raise InputError if the folder holds a run already."""
        files = (self.config, self.metrics, self.checkpoint, self.encoder)
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


def write_config(config: PretrainConfig, path: Path) -> None:
    path.write_text(yaml.safe_dump(_plain(asdict(config)), sort_keys=False, allow_unicode=True))


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
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        saved = state["config"]
        if state["format"] != _FORMAT:
            raise InputError(f"{path}: a checkpoint of another version of wcl")
    except (
        RuntimeError,
        pickle.UnpicklingError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a checkpoint of wcl, or a damaged one") from error
    if different := _differences(saved, _plain(asdict(config))):
        name, old, new = different[0]
        raise InputError(
            f"{path}: the run was made with {name}={old}, not {new}; resume it with the same "
            "settings, or start another run with a new --out"
        )
    return state


def _differences(saved: dict[str, Any], given: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    old, new = flat(saved), flat(given)
    return [
        (name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and name.split(".")[0] not in _FREE_ON_RESUME
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
