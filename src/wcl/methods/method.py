"""What every method is: a function from the embeddings of two views to named losses."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from wcl.config import LossConfig
from wcl.encoder import Embeddings


@dataclass(frozen=True)
class Losses:
    """The losses of a step."""

    total: Tensor
    """What is minimised."""
    parts: dict[str, Tensor]
    """The terms by their names in the paper, unweighted."""
    weak_labels: tuple[Tensor, ...] = ()
    """(N,) weak labels of each view, where the method has them."""


class Method(ABC):
    """A pretraining objective."""

    def __init__(self, config: LossConfig) -> None:
        self.config = config

    @property
    @abstractmethod
    def heads(self) -> tuple[str, ...]:
        """The projection heads it needs, of "g" and "phi"."""

    @abstractmethod
    def __call__(self, first: Embeddings, second: Embeddings) -> Losses:
        """Losses of a batch from the embeddings of its two views."""
