"""Our side of a race: `wcl pretrain` with a recipe."""

from typing import Any

from benchmarks.race.job import Job
from benchmarks.race.snapshots import Snapshots
from wcl.apps.pretrain import run
from wcl.config import PretrainConfig
from wcl.config.layering import settings
from wcl.config.run_config import read_config
from wcl.data import Source
from wcl.methods import method_settings
from wcl.models.encoder import load
from wcl.models.pretrained import input_settings
from wcl.system import machine
from wcl.system.run_folder import RunFolder
from wcl.training.setup import TrainingSetup


def train(job: Job) -> dict[str, Any]:
    """Train for the time of the job and leave snapshots; return facts about the training.

    The clock starts after the imports, before images are read.
    """
    machine.keep_freed_memory()
    snapshots = Snapshots(job.folder / "snapshots")
    config = run_config(job, out=str(job.folder / "run"), minutes=job.minutes)
    if not run(config, recipe=job.recipe, quiet=True, callbacks=(_Snapshots(snapshots),)):
        raise KeyboardInterrupt
    snapshots.take(load(config.out))
    return {"epochs": read_config(RunFolder(config.out).config)["epochs"]}


def run_config(job: Job, **changes: Any) -> PretrainConfig:
    """Return the settings of a run."""
    given = {"data": job.images, "seed": job.seed, "limit": 0, **changes}
    return settings(job.recipe, given, method_settings, input_of=input_settings)


class _Snapshots:
    """Take snapshots at the end of epochs."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def check(self, source: Source) -> None:
        pass

    def __call__(self, setup: TrainingSetup, epoch: int) -> dict[str, float]:
        self._snapshots.take_if_due(setup.encoder)
        return {}
