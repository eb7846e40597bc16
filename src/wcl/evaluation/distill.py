"""Distillation of a fine-tuned network on unlabeled images (SimCLR v2, arXiv 2006.10029, Eq. 2–3).

The fine-tuned network, the teacher, stays fixed and labels all training images; the student learns
its probabilities P_T at a temperature τ, and the labels with a weight of 1 − α:

    L = −α·Σ_{all x} Σ_y P_T(y|x; τ)·log P_S(y|x; τ) − (1 − α)·Σ_{labeled x} log P_S(y_x|x)

Both see the same random crop and flip of an image. As in the paper, the student is the same network
without the projection head and learns with α = 1 and τ = 1 by default; as in the authors' notebook,
it starts from random weights. (With a smaller student the authors use τ = 0.1, and the notebook
multiplies the loss by τ².) They train for 400 epochs with the optimizer of pretraining; here it is
the SGD of fine-tuning.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config import FinetuneConfig
from wcl.data import Source
from wcl.data.loader import Loader
from wcl.evaluation.crop_features import crop_and_flip
from wcl.evaluation.network_training import batch_size_for, build_network, fit, fresh_encoder
from wcl.models.encoder import Encoder
from wcl.ops.randomness import Integers


@dataclass(frozen=True)
class DistillationLoss:
    """The loss above, divided by the number of images in the batch.

    Args:
        teacher: the fine-tuned network, in evaluation mode.
        temperature: τ.
        labels: (images,) true labels, −1 for images without one.
        label_weight: 1 − α.
    """

    teacher: nn.Module
    temperature: float
    labels: Tensor
    label_weight: float = 0.0

    def __call__(self, images: Tensor, outputs: Tensor, rows: Tensor) -> Tensor:
        with torch.no_grad():
            probabilities = F.softmax(self.teacher(images) / self.temperature, dim=1)
        loss = (1 - self.label_weight) * F.cross_entropy(outputs / self.temperature, probabilities)
        if self.label_weight:
            labels = self.labels[rows]
            of_labels = F.cross_entropy(outputs, labels, ignore_index=-1, reduction="sum")
            loss = loss + self.label_weight * of_labels / len(rows)
        return loss


def distill(
    teacher: nn.Module, encoder: Encoder, train: Source, labeled: Integers, config: FinetuneConfig
) -> nn.Module:
    """Return a student of the teacher.

    Args:
        teacher: the fine-tuned network.
        encoder: the encoder that it was fine-tuned from.
        train: all training images.
        labeled: rows of those whose labels may be used.
        config: settings of the protocol.
    """
    assert train.labels is not None
    batch_size = batch_size_for(len(train), config.batch_size)
    loader = Loader(train, batch_size, config.seed, encoder.device, config.num_workers)
    known = torch.full_like(train.labels, -1)
    known[labeled] = train.labels[labeled]
    loss = DistillationLoss(
        teacher.eval(),
        config.distill_temperature,
        known.to(encoder.device),
        config.distill_label_weight,
    )
    start = fresh_encoder(encoder, config.seed)
    student = build_network(start, "pool", len(train.classes), config.seed)
    lrs = config.scratch_lr, config.scratch_lr
    maker = crop_and_flip(encoder)
    fit(student, loss, lrs, loader, maker, config.distill_epochs, "distillation")
    return student
