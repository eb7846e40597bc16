"""The weak labels that the method of a run finds."""

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.methods import build_method
from wcl.models.encoder import Encoder
from wcl.ops.weak_labels import weak_labels


@torch.no_grad()
def weak_labels_of(
    encoder: Encoder, features: Tensor, config: PretrainConfig | None
) -> Tensor | None:
    """Return (N,) weak labels of N images in one view; None if the run has none.

    Args:
        encoder: of the run.
        features: (N, D) of the images.
        config: settings of the run; None if they are unknown.
    """
    if config is None:
        return None
    head = encoder.phi if encoder.phi is not None else encoder.g
    if head is None or config.loss.labels_from == "h":
        return weak_labels(F.normalize(features, dim=1))
    return weak_labels(head(features.to(encoder.device)).float().cpu())


def learns_from_groups(config: PretrainConfig) -> bool:
    """Return whether the method of a run learns from weak labels."""
    return build_method(config.method, config.loss, config.crops.count > 0).learns_from_groups
