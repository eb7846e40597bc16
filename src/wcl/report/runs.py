"""What a run's folder says of the run, as far as it says anything: nothing in it need be there."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig
from wcl.config.layering import parse_settings
from wcl.methods import method_settings
from wcl.system.errors import InputError
from wcl.system.paths import expanded, one_line
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import is_number, read_metrics
from wcl.training.provenance import Session, read_sessions


@dataclass
class Run:
    """A run as its folder describes it."""

    folder: Path
    name: str
    config: PretrainConfig | None
    """Its settings, None if they cannot be read."""
    lines: list[dict[str, Any]]
    """Of metrics.jsonl."""
    evaluation: dict[str, Any] | None
    """What `wcl eval all` found, None if it was not run."""
    sessions: list[Session] = field(default_factory=list)
    """In which it was trained; none of a run that does not say."""
    missing: list[str] = field(default_factory=list)
    """What is not there, a sentence each."""

    @property
    def encoder_file(self) -> Path:
        return RunFolder(self.folder).encoder

    @property
    def evaluated_before_its_end(self) -> bool:
        """Whether the encoder was trained further since it was evaluated.

        Its weights tell: a copy of the run has files of other times.
        """
        evaluated = (self.evaluation or {}).get("sha256")
        return bool(evaluated) and _weights_sha256(self.encoder_file) not in ("", evaluated)


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Several runs, each under a name that tells it from the others.

    Raises:
        InputError: one of them is no run.
    """
    runs = [read_run(path) for path in paths]
    for depth in (2, 3):
        if len({run.name for run in runs}) < len(runs):
            for run in runs:
                run.name = text("/".join(run.folder.absolute().parts[-depth:]))
    for number, run in enumerate(runs):  # of one folder that was given twice
        if run.name in [other.name for other in runs[:number]]:
            run.name = f"{run.name} ({number + 1})"
    return runs


def read_run(path: str) -> Run:
    """What there is to know of a run without its data.

    Raises:
        InputError: there is no run.
    """
    folder = expanded(path)
    must_be_run(path)
    run = Run(folder, text(folder.absolute().name), None, [], None)
    files = RunFolder(folder)
    settings = files.config
    try:
        run.config = parse_settings([f"--config={settings}"], method_settings)
    except InputError as error:
        there = settings.is_file()
        run.missing.append(
            f"its settings cannot be read ({error})" if there else f"no {settings.name}"
        )
    run.lines = read_metrics(files.metrics)
    if not run.lines:
        run.missing.append("no step is logged yet, so there are no curves of it")
    if not run.encoder_file.is_file():
        run.missing.append("no encoder yet: its first epoch has not ended")
    run.sessions = read_sessions(files.provenance)
    run.evaluation = _evaluation(files.evaluation, run.missing)
    return run


def must_be_run(path: str) -> None:
    """Raise InputError if there is nothing of a run."""
    if not RunFolder(path).is_run:
        raise InputError(f"{path}: no run there; give the folder that `wcl pretrain --out` made")


def text(path: str | Path) -> str:
    """A path for people to read: on one line, and what is no text in it replaced."""
    return one_line(os.fsencode(path).decode(errors="replace"))


def short(path: str | Path) -> str:
    """The same with ~ for the home folder: a report may be shown to others."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home raises without a home
    words = text(path)
    return f"~{words[len(home) :]}" if words == home or words.startswith(f"{home}/") else words


def _weights_sha256(encoder: Path) -> str:
    """What an encoder's file states of its weights; empty if it states nothing."""
    from safetensors import SafetensorError

    from wcl.models.weights_file import read_header

    try:
        (described,) = read_header(encoder)["__metadata__"].values()
        return str(json.loads(described)["sha256"])
    except (
        OSError,
        SafetensorError,
        ValueError,
        RecursionError,
        LookupError,
        TypeError,
        AttributeError,
    ):
        return ""


def _evaluation(path: Path, missing: list[str]) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
        assert isinstance(found, dict)
        assert "\0" not in str(found.get("data", ""))
        assert all({"protocol", "measure"} <= row.keys() for row in found["rows"])
        scores = [row["encoder"] for row in found["rows"]]
        assert all(is_number(score) and 0 <= score <= 1 for score in scores)
    except (
        OSError,
        ValueError,
        RecursionError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,
    ):
        missing.append("its evaluation.json cannot be read; `wcl eval all` writes it anew")
        return None
    return found
