"""Make `import torchvision` work when its wheel was built for another torch.

The registry's torchvision wheel is compiled against CUDA torch. Beside a CPU torch its extension
library does not load, and the import then dies because Python code registers gradients for
operators (`nms`, `qnms`) that nobody declared. Nothing here uses those operators, so declaring
them, when and only when the import failed that way, is enough. `timm` imports torchvision, so this
reaches it as well.

The mending is a hook on the import of torchvision itself: no other module has to know about it,
and nothing happens until somebody imports torchvision.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept_libraries: list[object] = []  # a torch.library.Library withdraws its operators when collected


class _MendingLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._loader.exec_module(module)
        except RuntimeError as error:
            if "operator torchvision::nms does not exist" not in str(error):
                raise
            _declare_operators()
            for name in [name for name in sys.modules if name.startswith("torchvision.")]:
                del sys.modules[name]
                vars(module).pop(name.removeprefix("torchvision."), None)  # or it would be reused
            self._loader.exec_module(module)


class _TorchvisionFinder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torchvision":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _MendingLoader(spec.loader)
        return spec


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for signature in _OPERATORS:
        library.define(signature)
    _kept_libraries.append(library)


def install() -> None:
    """Put the hook in place; calling it again changes nothing."""
    if not any(isinstance(finder, _TorchvisionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchvisionFinder())
