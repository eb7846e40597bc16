"""What every method is: a function from the embeddings of views to named losses."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from wcl.config import LossConfig
from wcl.distributed.sharding import BatchShard
from wcl.models.encoder import Embeddings


@dataclass(frozen=True)
class Losses:
    """The losses of a step."""

    total: Tensor
    """What is minimized."""
    parts: dict[str, Tensor]
    """The terms by their names in the paper, unweighted."""
    weak_labels: tuple[Tensor, ...] = ()
    """(N,) weak labels of each view, where the method has them."""


_OF_CROPS = ("cnce", "cswap")
_OF_GROUPS = ("swap", "cswap")


class Method(ABC):
    """A pretraining objective.

    Args:
        config: weights and forms of the losses.
        crops: whether there will be small crops beside the two views.
    """

    Settings: ClassVar[type] = LossConfig
    """Dataclass of the settings of the method: the group `loss` of a run's settings."""
    terms: tuple[str, ...] = ()
    """The losses that it has at most, by the names of their weights in LossConfig."""

    def __init__(self, config: LossConfig, crops: bool = False) -> None:
        self.config = config
        self.weights = {
            name: weight
            for name in self.terms
            if (weight := getattr(config, name)) and (crops or name not in _OF_CROPS)
        }

    @property
    def learns_from_groups(self) -> bool:
        """Whether weak labels are among what it learns from."""
        return any(name in self.weights for name in _OF_GROUPS)

    @property
    @abstractmethod
    def heads(self) -> tuple[str, ...]:
        """The projection heads it needs, of "g" and "phi"."""

    @abstractmethod
    def __call__(
        self,
        first: Embeddings,
        second: Embeddings,
        crops: Embeddings | None = None,
        share: BatchShard | None = None,
    ) -> Losses:
        """Losses of a batch of N images.

        Args:
            first, second: of the two views, N rows each.
            crops: of K small crops, K·N rows: every image's first, then every image's second, …
            share: if these images are only a part of a batch, whose others are on other processes:
                where they are among them. The losses are then the part that these images make up of
                those of the whole batch, and the weak labels those of all its images.
        """

    def weighted(self, parts: dict[str, Tensor]) -> Tensor:
        """The sum of the losses, each times its weight."""
        return torch.stack([self.weights[name] * part for name, part in parts.items()]).sum()


def gather_embeddings(
    share: BatchShard | None, *columns: Tensor | None
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """These embeddings of all images of the batch, and where the ones given are among them."""
    present = tuple(column for column in columns if column is not None)
    assert len(present) == len(columns), "the network has not the heads that the method needs"
    return (present, None) if share is None else (share.gather_all(*present), share.own)


def by_crop(embeddings: Tensor, images: int) -> Tensor:
    """(K·N, D) → (K, N, D)."""
    return embeddings.view(-1 if images else 1, images, embeddings.shape[1])
