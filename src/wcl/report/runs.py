"""Runs as their folders describe them. All files but the settings may be missing."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wcl.config import PretrainConfig
from wcl.config.layering import settings
from wcl.system.errors import InputError
from wcl.system.run_argument import check_run, timm_model
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics
from wcl.training.provenance import Session, read_sessions

if TYPE_CHECKING:
    from wcl.models.encoder import Encoder

NO_METHOD = "none"
"""Method of a pretrained model, which stands in for a run although nothing was trained."""


@dataclass
class Run:
    """Settings, metrics, provenance and evaluation of a run."""

    folder: Path
    name: str
    config: PretrainConfig
    lines: list[dict[str, Any]] = field(default_factory=list)
    """Parsed lines of its metrics file."""
    sessions: list[Session] = field(default_factory=list)
    evaluation: dict[str, Any] | None = None
    """The result of `wcl eval all`, if there is one."""
    argument: str = ""
    """How commands name it."""
    encoder: "Encoder | None" = None
    """The pretrained model that stands in for a run, whose folder is in the cache then."""

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The lines of the epochs that have ended."""
        return [line for line in self.lines if line["kind"] == "epoch"]

    @property
    def epochs_done(self) -> int:
        return int(self.epochs[-1]["epoch"]) if self.epochs else 0

    @property
    def is_unfinished(self) -> bool:
        """Whether training has not reached its last epoch."""
        return self.encoder is None and self.epochs_done < self.config.epochs

    @property
    def trained_since_evaluation(self) -> bool:
        """Whether the encoder's weights are not those that were evaluated."""
        from wcl.models.weights_file import read_header

        if self.evaluation is None or not self.files.encoder.is_file():
            return False
        (description,) = read_header(self.files.encoder)["__metadata__"].values()
        return bool(json.loads(description)["sha256"] != self.evaluation["sha256"])


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Read several runs; those in folders of the same name are named with the folders above.

    Raises:
        InputError: one of the folders holds no run, or its settings cannot be read.
    """
    runs = [pretrained_run(path) if timm_model(path) else read_run(path) for path in paths]
    for depth in (2, 3):
        if len({run.name for run in runs}) < len(runs):
            for run in runs:
                run.name = "/".join(run.folder.absolute().parts[-depth:])
    return runs


def read_run(path: str) -> Run:
    """Read all files of a run but its weights.

    Raises:
        InputError: the folder holds no run, or its settings cannot be read.
    """
    from wcl.methods import method_settings  # imports torch

    must_be_run(path)
    files = RunFolder(path)
    config = settings("", {}, method_settings, files=[files.config])
    run = Run(files.path, files.path.absolute().name, config, argument=shortened(files.path))
    run.lines = read_metrics(files.metrics)
    run.sessions = read_sessions(files.provenance)
    run.evaluation = _read_evaluation(files)
    return run


def pretrained_run(argument: str) -> Run:
    """Open a pretrained model of timm, with what was measured of it.

    Raises:
        InputError: there is no such model, or its weights cannot be loaded.
    """
    from wcl.models.opening import open_encoder  # imports torch

    encoder = open_encoder(argument)
    described = encoder.description
    assert encoder.home is not None
    config = PretrainConfig(
        method=NO_METHOD, image_size=described.image_size, model=described.model
    )
    config.augment.mean, config.augment.std = described.mean, described.std
    shown = shortened_argument(argument)
    run = Run(encoder.home, described.model.backbone, config, argument=shown, encoder=encoder)
    run.evaluation = _read_evaluation(run.files)
    return run


def _read_evaluation(files: RunFolder) -> dict[str, Any] | None:
    if not files.evaluation.is_file():
        return None
    evaluation: dict[str, Any] = json.loads(files.evaluation.read_text(encoding="utf-8"))
    return evaluation


def must_be_run(path: str) -> None:
    """Raise InputError if the folder holds no run, and there is no such pretrained model."""
    if timm_model(path):
        check_run(path)
        return
    if not RunFolder(path).is_run:
        raise InputError(f"{path}: not a run folder; give one that `wcl pretrain --out` wrote")


def shortened_argument(argument: str) -> str:
    """Return the RUN of a command with ~ for the home folder."""
    if not timm_model(argument):
        return shortened(argument)
    name, at, file = argument.partition("@")
    return f"{name}{at}{shortened(file)}"


def shortened(path: str | Path) -> str:
    """Return a path with ~ for the home folder: pages may be shown to others."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home raises without a home
    text = str(path)
    inside = text == home or text.startswith((f"{home}/", f"{home}{os.sep}"))
    return f"~{text[len(home) :]}" if inside else text
