"""The weak labels that the method of a run finds."""

import torch
from torch import Tensor

from wcl.methods import Method, RunInfo, find_method
from wcl.models.encoder import Encoder
from wcl.report.runs import NO_METHOD, Run
from wcl.system.errors import InputError
from wcl.training.checkpoint import load_checkpoint


@torch.no_grad()
def weak_labels_of(run: Run, encoder: Encoder, features: Tensor) -> Tensor | None:
    """Return (N,) weak labels of N images in one view; None if the method has none.

    Args:
        run: the run.
        encoder: of the run.
        features: (N, D) of the images.
    """
    method = _method(run, encoder, len(features))
    if method is None:
        return None
    h = features.to(encoder.device)
    projections = {name: head(h).float().cpu() for name, head in encoder.heads.items()}
    return method.weak_labels({"h": features, **projections})


def _method(run: Run, encoder: Encoder, images: int) -> Method | None:
    """Return the method of a run; None if it has no weak labels, or not the state they need."""
    config = run.config
    if config.method == NO_METHOD:
        return None
    found = find_method(config.method)
    if found.weak_labels is Method.weak_labels:
        return None  # without building it: it may need labels, or more images than these
    state: dict[str, Tensor] = {}
    if found.weak_labels_need_state:
        try:
            saved = load_checkpoint(run.files.checkpoint, config)
        except InputError:  # damaged
            saved = None
        if saved is None or "images" not in saved:  # of an earlier version
            return None
        images = saved["images"]
        # The encoder stays that of the report: that of the checkpoint may have trained on.
        state = {k: v for k, v in saved["method"].items() if not k.startswith("encoder.")}
    info = RunInfo(images, config.batch_size, 1, config.crops.count)
    method = found(encoder, config.loss, info)
    method.load_state_dict(state, strict=False)
    return method
