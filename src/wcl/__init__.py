"""Weakly supervised contrastive learning: an encoder from images without labels.

The parts work alone (`wcl.weak_labels`, `wcl.losses`), the whole works in one call
(`wcl.pretrain`, `wcl.evaluate`, `wcl.write_report`, `wcl.load`), and so does what people do with an
encoder (`wcl.embed`, `wcl.search`, `wcl.duplicates`, `wcl.cluster`). Nothing heavy is imported
until it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from wcl.system import lightning_import, torchvision_import
from wcl.system.errors import naming_arguments

if TYPE_CHECKING:
    from wcl import augment, data, evaluation, methods, models, ops
    from wcl.apps.cluster import cluster
    from wcl.apps.duplicates import duplicates
    from wcl.apps.embed import embed
    from wcl.apps.pretrain import pretrain
    from wcl.apps.search import search
    from wcl.evaluation import evaluate
    from wcl.exporters import export, load
    from wcl.ops import losses
    from wcl.ops.weak_labels import weak_labels
    from wcl.report.build import write_report
    from wcl.system import errors

__version__ = "0.1.0"
__all__ = [
    "augment",
    "cluster",
    "data",
    "duplicates",
    "embed",
    "errors",
    "evaluate",
    "evaluation",
    "export",
    "load",
    "losses",
    "methods",
    "models",
    "ops",
    "pretrain",
    "search",
    "weak_labels",
    "write_report",
]

_FUNCTIONS = {
    "weak_labels": "wcl.ops.weak_labels",
    "load": "wcl.exporters",
    "export": "wcl.exporters",
    "pretrain": "wcl.apps.pretrain",
    "evaluate": "wcl.evaluation",
    "search": "wcl.apps.search",
    "duplicates": "wcl.apps.duplicates",
    "cluster": "wcl.apps.cluster",
    "embed": "wcl.apps.embed",
    "write_report": "wcl.report.build",
}
_MODULES = {"losses": "wcl.ops.losses", "errors": "wcl.system.errors"}

torchvision_import.install()
lightning_import.install()


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        function = getattr(importlib.import_module(_FUNCTIONS[name]), name)
        globals()[name] = naming_arguments(function)
        return globals()[name]
    if name in __all__:
        return importlib.import_module(_MODULES.get(name, f"wcl.{name}"))
    raise AttributeError(f"module 'wcl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
