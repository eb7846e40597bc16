"""The weak labels that the method of a run finds."""

import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.methods import Method, RunInfo, find_method
from wcl.models.encoder import Encoder
from wcl.report.runs import NO_METHOD


@torch.no_grad()
def weak_labels_of(encoder: Encoder, features: Tensor, config: PretrainConfig) -> Tensor | None:
    """Return (N,) weak labels of N images in one view; None if the method has none.

    Args:
        encoder: of the run.
        features: (N, D) of the images.
        config: settings of the run.
    """
    if config.method == NO_METHOD:
        return None
    found = find_method(config.method)
    if found.weak_labels is Method.weak_labels:
        return None  # without building it: it may need labels, or more images than these
    info = RunInfo(len(features), config.batch_size, 1, config.crops.count)
    method = found(encoder, config.loss, info)
    h = features.to(encoder.device)
    projections = {name: head(h).float().cpu() for name, head in encoder.heads.items()}
    return method.weak_labels({"h": features, **projections})
