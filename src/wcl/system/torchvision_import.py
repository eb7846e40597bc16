"""Make `import torchvision` work when its wheel was built for another torch.

The registry's torchvision wheel is compiled against CUDA torch. Beside a CPU torch its extension
library does not load, and the import then fails because Python code registers gradients for
operators (`nms`, `qnms`) that are not declared. Nothing here uses those operators, so it is enough
to declare them, if and only if the import failed that way. This also covers `timm`, which imports
torchvision.
"""

from importlib.abc import Loader
from types import ModuleType

from wcl.system.import_hook import add_hook, forget_parts

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[object] = []  # a torch.library.Library removes its operators when collected


def _execute(loader: Loader, module: ModuleType) -> None:
    try:
        loader.exec_module(module)
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        _declare_operators()
        forget_parts(module)
        loader.exec_module(module)


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for signature in _OPERATORS:
        library.define(signature)
    _libraries.append(library)


def install() -> None:
    """Install the hook; further calls change nothing."""
    add_hook("torchvision", _execute)
