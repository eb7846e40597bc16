"""Make `import torchvision` work when its wheel was built for another torch.

The registry's torchvision wheel is compiled against CUDA torch. Beside a CPU torch its extension
library does not load, and the import then fails because Python code registers gradients for
operators (`nms`, `qnms`) that are not declared. Nothing here uses those operators, so it is enough
to declare them, if and only if the import failed that way. This also covers `timm`, which imports
torchvision.

The fix is a hook on the import of torchvision, so no other module has to know about it.
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
_libraries: list[object] = []  # a torch.library.Library removes its operators when collected


class _FixingLoader(importlib.abc.Loader):
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
                vars(module).pop(name.removeprefix("torchvision."), None)  # otherwise it is reused
            self._loader.exec_module(module)


class _TorchvisionFinder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torchvision":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _FixingLoader(spec.loader)
        return spec


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for signature in _OPERATORS:
        library.define(signature)
    _libraries.append(library)


def install() -> None:
    """Install the hook; further calls change nothing."""
    if not any(isinstance(finder, _TorchvisionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchvisionFinder())
