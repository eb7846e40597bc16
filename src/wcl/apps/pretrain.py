"""`wcl pretrain`: training together with its measurements and pictures."""

from pathlib import Path
from typing import Any

from wcl.apps.contact_sheet import write_sheet
from wcl.apps.end_verdict import show_verdict
from wcl.apps.neighbor_sheet import neighbor_sheet
from wcl.config import PretrainConfig
from wcl.config.layering import settings
from wcl.config.recipes import default_recipe
from wcl.data import Source
from wcl.evaluation.callback import KnnCallback
from wcl.methods import method_settings
from wcl.models.pretrained import input_settings
from wcl.system.run_folder import RunFolder
from wcl.training import loop
from wcl.training.callback import Callback
from wcl.training.setup import TrainingSetup


def pretrain(
    recipe: str = "", resume: bool = False, config: str | Path = "", **changes: Any
) -> Path:
    """Pretrain an encoder, as `wcl pretrain` does, and return the run folder.

    Args:
        recipe: name of a recipe; by default the one named like the data, or `folder`.
        resume: whether to continue the run in `out` from its last checkpoint.
        config: YAML file of settings, such as another run's config.yaml.
        changes: settings by name; those of a group as a dict or with a double underscore:
            `data="photos", out="runs/a", optim={"lr": 0.1}, model__backbone="resnet50"`.

    Raises:
        KeyboardInterrupt: a signal stopped the run after a step; continue with `resume=True`.
    """
    files = [str(config)] if config else []
    recipe = recipe or ("" if files or resume else default_recipe(str(changes.get("data", ""))))
    chosen = settings(recipe, changes, method_settings, resume, files, input_settings)
    if not run(chosen, resume, recipe):
        raise KeyboardInterrupt
    return RunFolder(chosen.out).path


def run(
    config: PretrainConfig,
    resume: bool = False,
    recipe: str = "",
    quiet: bool = False,
    callbacks: tuple[Callback, ...] = (),
) -> bool:
    """Train with k-NN evaluation and pictures of neighbors; see `wcl.training.loop.run`."""
    callbacks = (KnnCallback(config), NeighborSheet(), *callbacks)
    return loop.run(config, resume, recipe, callbacks, quiet)


def run_with_verdict(config: PretrainConfig, resume: bool, recipe: str) -> bool:
    """Train, and print a verdict on the run if it finished here and now."""
    end = EndOfRun()
    finished = run(config, resume, recipe, callbacks=(end,))
    if finished and end.epoch:
        show_verdict(RunFolder(config.out), config.device)
    return finished


class EndOfRun:
    """Remember the last epoch that this process finished as rank zero."""

    epoch = 0

    def check(self, source: Source) -> None:
        pass

    def __call__(self, setup: TrainingSetup, epoch: int) -> dict[str, float]:
        self.epoch = epoch
        return {}


class NeighborSheet:
    """Write a picture of some images and their current neighbors after every epoch."""

    def check(self, source: Source) -> None:
        pass

    def __call__(self, setup: TrainingSetup, epoch: int) -> dict[str, float]:
        crops = setup.neighbor_crops
        if crops is not None and crops.table is not None:
            sheet = neighbor_sheet(setup.source, crops.table, setup.config.seed)
            if sheet is not None:
                write_sheet(setup.folder.neighbors, sheet)
        return {}
