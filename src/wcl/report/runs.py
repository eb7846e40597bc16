"""Runs as their folders describe them. Any of their files may be missing."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig
from wcl.config.layering import settings
from wcl.system.errors import InputError
from wcl.system.paths import expanded, one_line
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import read_metrics
from wcl.training.provenance import Session, read_sessions


@dataclass
class Run:
    """What is known about a run."""

    folder: Path
    name: str
    config: PretrainConfig | None = None
    """None if its settings cannot be read."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """Of its metrics file."""
    evaluation: dict[str, Any] | None = None
    """The result of `wcl eval all`, if there is one."""
    sessions: list[Session] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What is missing or damaged, for the reader of a page."""

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The lines of the epochs that have ended."""
        return [line for line in self.lines if line.get("kind") == "epoch"]

    @property
    def epochs_done(self) -> int:
        return int(self.epochs[-1]["epoch"]) if self.epochs else 0

    @property
    def trained_since_evaluation(self) -> bool:
        """Whether the encoder's weights are not those that were evaluated."""
        evaluated = (self.evaluation or {}).get("sha256")
        return bool(evaluated) and _weights_sha256(self.files.encoder) not in ("", evaluated)


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Read several runs and give each a name of its own.

    Raises:
        InputError: one of the folders holds no run.
    """
    runs = [read_run(path) for path in paths]
    for depth in (2, 3):
        if len({run.name for run in runs}) < len(runs):
            for run in runs:
                run.name = printable("/".join(run.folder.absolute().parts[-depth:]))
    for number, run in enumerate(runs):  # the same folder, given twice
        if run.name in [other.name for other in runs[:number]]:
            run.name = f"{run.name} ({number + 1})"
    return runs


def read_run(path: str) -> Run:
    """Read all files of a run but its weights.

    Raises:
        InputError: the folder holds no run.
    """
    from wcl.methods import method_settings  # imports torch

    must_be_run(path)
    folder = expanded(path)
    run = Run(folder, printable(folder.absolute().name))
    files = run.files
    try:
        run.config = settings("", {}, method_settings, files=[files.config])
    except InputError as error:
        exists = files.config.is_file()
        run.problems.append(
            f"its settings cannot be read ({error})" if exists else f"it has no {files.config.name}"
        )
    run.lines = read_metrics(files.metrics)
    if not run.lines:
        run.problems.append("nothing is logged yet, so it has no curves")
    if not files.encoder.is_file():
        run.problems.append("it has no encoder yet: its first epoch has not ended")
    run.sessions = read_sessions(files.provenance)
    run.evaluation = _read_evaluation(files.evaluation, run.problems)
    return run


def must_be_run(path: str) -> None:
    """Raise InputError if the folder holds no run."""
    if not RunFolder(path).is_run:
        raise InputError(f"{path}: no run there; give a folder that `wcl pretrain --out` wrote")


def printable(path: str | Path) -> str:
    """Return a path as text on one line, with undecodable bytes replaced."""
    return one_line(os.fsencode(path).decode(errors="replace"))


def shortened(path: str | Path) -> str:
    """Return a printable path with ~ for the home folder: pages may be shown to others."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home raises without a home
    text = printable(path)
    return f"~{text[len(home) :]}" if text == home or text.startswith(f"{home}/") else text


def _weights_sha256(encoder: Path) -> str:
    """Return the hash of its weights that an encoder's file states; empty if it is damaged."""
    from safetensors import SafetensorError

    from wcl.models.weights_file import read_header

    try:
        (description,) = read_header(encoder)["__metadata__"].values()
        return str(json.loads(description)["sha256"])
    except (OSError, SafetensorError, ValueError, LookupError, TypeError):
        return ""


def _read_evaluation(path: Path, problems: list[str]) -> dict[str, Any] | None:
    try:
        evaluation: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for row in evaluation["rows"]:
            if not {"protocol", "measure"} <= row.keys() or not 0 <= row["encoder"] <= 1:
                raise ValueError("not a row of an evaluation")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        problems.append(f"its {path.name} cannot be read; `wcl eval all` writes it again")
        return None
    return evaluation
