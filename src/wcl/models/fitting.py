"""Comparison of a file's tensors with those of a network."""

import sys
import warnings
from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from wcl.system.paths import one_line, shortened

_MAX_NAMED, _MAX_NAME = 3, 60


class Fit(NamedTuple):
    """Which of a file's tensors a network can take."""

    tensors: dict[str, Tensor]
    """The tensors that fit."""
    missing: list[str]
    extra: list[str]
    misshapen: list[str]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing fits but counters, which all networks have."""
        return not any(tensor.is_floating_point() for tensor in self.tensors.values())

    @property
    def problems(self) -> int:
        return len(self.missing) + len(self.extra) + len(self.misshapen)

    def __str__(self) -> str:
        """Count and name the problems."""
        kinds = {"missing": self.missing, "extra": self.extra, "of another shape": self.misshapen}
        return ", ".join(
            f"{len(names)} {kind} ({_named(names)})" for kind, names in kinds.items() if names
        )


def best_fit(given: dict[str, Tensor], backbone: nn.Module, name: str) -> Fit:
    """Compare tensors with those of a backbone, as they are and as timm converts them.

    timm renames the tensors of published files and resizes position embeddings to the image size.
    The classifier, which a backbone does not have, may be in the file.

    Args:
        given: the tensors.
        backbone: the network.
        name: its name.
    """
    import timm  # here, because networks of our own do without it, and it takes a second

    wanted: dict[str, Tensor] = backbone.state_dict()
    fit = _fit(given, wanted)
    if not fit.problems or not timm.is_model(name):
        return fit
    known = _names_with_classifier(name)
    fit = _fit(given, wanted, known)
    module = sys.modules[timm.model_entrypoint(name).__module__]
    convert = getattr(module, "checkpoint_filter_fn", None)
    if fit.problems and convert is not None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the code of timm
                converted = _fit(convert(dict(given), backbone), wanted, known)
            fit = min(fit, converted, key=lambda each: each.problems)
        except Exception:  # it assumes weights of this architecture, and fails in many ways
            pass
    return fit


def _fit(given: dict[str, Tensor], wanted: dict[str, Tensor], known: Collection[str] = ()) -> Fit:
    extra = sorted(name for name in given if name not in wanted and name not in known)
    # Files older than this counter lack it, and nothing depends on it.
    missing = [n for n in wanted if n not in given and not n.endswith("num_batches_tracked")]
    shared = [name for name in wanted if name in given]
    tensors = {name: given[name] for name in shared if _is_alike(given[name], wanted[name])}
    return Fit(tensors, missing, extra, [name for name in shared if name not in tensors])


def _is_alike(given: Tensor, wanted: Tensor) -> bool:
    return (
        given.shape == wanted.shape
        and given.is_floating_point() == wanted.is_floating_point()
        and (given.layout, given.device.type) == (torch.strided, "cpu")
    )


def _names_with_classifier(name: str) -> set[str]:
    """Return the names of the tensors of a whole model of timm, its classifier included."""
    import timm

    with torch.device("meta"):
        return {*timm.create_model(name).state_dict()}


def _named(names: list[str]) -> str:
    shown = [shortened(one_line(name), _MAX_NAME) for name in names[:_MAX_NAMED]]
    return ", ".join([*shown, *["…"] * (len(names) > _MAX_NAMED)])
