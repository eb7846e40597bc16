"""Weakly supervised contrastive learning: an encoder from images without labels.

The parts work alone (`wcl.weak_labels`, `wcl.losses`), the whole works in one call
(`wcl.pretrain`, `wcl.evaluate`, `wcl.load`). Nothing heavy is imported until it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from wcl import torchvision_import

if TYPE_CHECKING:
    from wcl import augment, data, encoder, errors, evaluation, graph, losses, methods, optim
    from wcl.evaluation import evaluate
    from wcl.exports import export, load
    from wcl.graph import weak_labels
    from wcl.retrieval import duplicates, neighbours
    from wcl.train import pretrain

__version__ = "0.1.0"
__all__ = [
    "augment",
    "data",
    "duplicates",
    "encoder",
    "errors",
    "evaluate",
    "evaluation",
    "export",
    "graph",
    "load",
    "losses",
    "methods",
    "neighbours",
    "optim",
    "pretrain",
    "weak_labels",
]

_HOME_OF = {
    "weak_labels": "wcl.graph",
    "load": "wcl.exports",
    "export": "wcl.exports",
    "pretrain": "wcl.train",
    "evaluate": "wcl.evaluation",
    "neighbours": "wcl.retrieval",
    "duplicates": "wcl.retrieval",
}

torchvision_import.install()


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    if name in __all__:
        return importlib.import_module(f"wcl.{name}")
    raise AttributeError(f"module 'wcl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
