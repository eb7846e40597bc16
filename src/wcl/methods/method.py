"""The interface of a pretraining method.

A method is a module that owns its networks. The training loop owns data, processes, precision,
checkpoints and logging, and calls the method in this order in every step:

1. `targets`, without gradients: the teacher branch;
2. `embed`, with gradients, through the engine (DDP, autocast, synchronized batch norm);
3. `loss`, on the embeddings of the whole batch;
4. after the optimizer's step, `after_step`: moving averages, queues, prototypes.

With micro-batches `targets` and `embed` are called once for each, and `loss` once on the
concatenated results. All parameters that need a gradient must therefore be used in `embed`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from wcl.config import AugmentConfig
from wcl.distributed.sharding import BatchShard
from wcl.models.encoder import Encoder
from wcl.models.multiview import embed_views, select_views
from wcl.neighbors import FeatureBank


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run that a method may need to build itself."""

    images: int
    batch_size: int
    steps_per_epoch: int
    crops: int
    """Small crops per image beside the two full views."""
    labels: Tensor | None = None
    """(images,) true labels where the data have them, for oracles; None otherwise."""


@dataclass(frozen=True)
class Losses:
    """The losses of a step. Of several processes, each has the part of its local images."""

    total: Tensor
    """The scalar to minimize; the parts of all processes add up to the loss of the batch."""
    parts: dict[str, Tensor]
    """Named terms, unweighted, for the log, where "loss" is the total."""
    pair: tuple[Tensor, Tensor]
    """(n, D) each: embeddings of two views of the local images, for alignment and uniformity."""
    weak_labels: tuple[Tensor, ...] = ()
    """(N,) weak labels of all images in each view, where the method finds them."""
    diagnostics: dict[str, Tensor] = field(default_factory=dict)
    """Scalars for the log, the same on every process."""
    positives: Tensor | None = None
    """(N, k) dataset indices of the other images that each image of the batch takes as positives,
    in the batch or outside, where the method chooses them one by one; −1 fills up a row. The same
    on every process."""


class Method(nn.Module, ABC):
    """A pretraining method.

    Args:
        encoder: the network to train, with the projection heads of `heads`.
        settings: an instance of `Settings`.
        info: facts about the run.
    """

    Settings: ClassVar[type[Any]]
    """Dataclass of the method's settings: the group `loss` of a run's settings.

    Its fields have defaults and are numbers, booleans, text, choices (Literal) or tuples of these.
    """
    supports_crops: ClassVar[bool] = True
    """Whether the method learns from small crops beside the two full views."""
    needs_labels: ClassVar[bool] = False
    """Whether the method learns from the true labels, `RunInfo.labels`."""
    needs_features: ClassVar[bool] = False
    """Whether `start` needs the features of all images before the first step."""

    weak_labels_need_state: ClassVar[bool] = False
    """Whether `weak_labels` uses more of the trained method than its encoder."""

    encoder: Encoder
    """What is saved, evaluated and exported."""

    def __init__(self, encoder: Encoder, settings: Any, info: RunInfo) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        self.info = info

    @classmethod
    def heads(cls, settings: Any, crops: int) -> tuple[str, ...]:
        """Return the names of the encoder's projection heads."""
        return ("g",)

    @classmethod
    def augmentations(
        cls, settings: Any, augment: AugmentConfig
    ) -> tuple[AugmentConfig, AugmentConfig]:
        """Return the augmentations of the first and the second full view."""
        return augment, augment

    @classmethod
    def support_views(cls, settings: Any) -> int:
        """Return the number of further full-size views per image.

        They come after the two full views and before the small crops. `embed` leaves them out; they
        are for `targets`.
        """
        return 0

    @classmethod
    def support_augmentation(cls, settings: Any, augment: AugmentConfig) -> AugmentConfig:
        """Return the augmentation of the support views, by default that of the first full view."""
        return cls.augmentations(settings, augment)[0]

    def start(self, bank: FeatureBank) -> None:
        """Prepare a new run, if the method `needs_features`.

        A resumed run restores the `state_dict` instead, so what is kept belongs there.

        Args:
            bank: features of all readable images without augmentation, by the starting weights.
        """

    def embed(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """Embed the views of local images, differentiably.

        Args:
            views: one (views, n, C, H, W) per view specification: the full views, the support
                views if there are any, then the small crops.

        Returns:
            Tensors (views, n, …) by name. "h" is required: the features of the encoder.
        """
        support = self.support_views(self.settings)
        crops = select_views(views, 2 + support, 2 + support + self.info.crops)
        return embed_views(self.encoder, [*select_views(views, 0, 2), *crops])

    @torch.no_grad()
    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        """Compute the targets of the teacher branch, (views, n, …) by name; none by default."""
        return {}

    @abstractmethod
    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        """Compute the losses of a step.

        Args:
            out: the result of `embed` for all n local images.
            targets: the result of `targets` for all n local images.
            shard: where the local images are in the batch of N, and how to gather the others.
        """

    def after_step(self, progress: float) -> None:
        """Update what is not trained by gradients.

        Args:
            progress: share of the run's steps that are done, in (0, 1].
        """

    def end_of_epoch(self, bank: FeatureBank | None) -> None:
        """Update what changes from epoch to epoch.

        Args:
            bank: features of all images, if the run has neighbor crops.
        """

    def weak_labels(self, embeddings: dict[str, Tensor]) -> Tensor | None:
        """Return (N,) weak labels found in the embeddings (N, …) of one view, for reports.

        None if the method does not learn from weak labels.
        """
        return None


def weighted_sum(parts: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    """Add up named losses, each times its weight."""
    return torch.stack([weights[name] * part for name, part in parts.items()]).sum()
