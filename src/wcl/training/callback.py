"""What training calls at the end of an epoch without knowing what it does."""

from typing import TYPE_CHECKING, Protocol

from wcl.data import Source

if TYPE_CHECKING:
    from wcl.training.setup import TrainingSetup


class Callback(Protocol):
    """A measurement or a picture at the end of an epoch."""

    def check(self, source: Source) -> None:
        """Raise InputError if it could not be done; called before training starts."""

    def __call__(self, setup: "TrainingSetup", epoch: int) -> dict[str, float]:
        """Do it after `epoch` epochs, on rank zero; return figures for the log.

        0 is before the first epoch of a run that starts from pretrained weights.
        """
