"""RUN, the argument of commands that need an encoder.

It is the folder of a run, a file of weights, a folder for the hub, or a pretrained model of timm.
"""

from pathlib import Path
from typing import NamedTuple

from wcl.system.errors import InputError
from wcl.system.paths import expanded
from wcl.system.run_folder import weights_of

_PREFIX = "timm:"


class TimmModel(NamedTuple):
    """A pretrained model of timm, given as `timm:NAME[:SIZE][@FILE]`."""

    name: str
    image_size: int = 0
    """0 for the size that belongs to the weights."""
    weights: str = "timm"
    """Where the weights are, as for `--model.weights`."""


def timm_model(run: str | Path) -> TimmModel | None:
    """Return the model of timm that an argument names; None if it names something else.

    Raises:
        InputError: the name or the size is missing or impossible.

    >>> timm_model("timm:resnet18:96@weights.pth")
    TimmModel(name='resnet18', image_size=96, weights='weights.pth')
    >>> timm_model("timm:resnet18")
    TimmModel(name='resnet18', image_size=0, weights='timm')
    """
    text = str(run)
    if not text.startswith(_PREFIX):
        return None
    model, at, weights = text.removeprefix(_PREFIX).partition("@")
    name, colon, size = model.partition(":")
    is_size = size.isascii() and size.isdecimal() and len(size) <= 4 and 0 < int(size) <= 4096
    if not name or (at and not weights) or (colon and not is_size):
        raise InputError(
            f"{text}: write timm:NAME, timm:NAME@FILE or, with a size in pixels, timm:NAME:96@FILE"
        )
    return TimmModel(name, int(size or 0), weights or "timm")


def check_run(run: str | Path) -> None:
    """Raise InputError if RUN does not exist, before anything is imported that takes seconds."""
    model = timm_model(run)
    if model is None:
        weights_of(run)
    elif model.weights != "timm" and not expanded(model.weights).exists():
        raise InputError(f"{run}: there is no {model.weights}")
