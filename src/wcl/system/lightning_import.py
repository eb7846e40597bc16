"""Make `import lightning_fabric` quick.

Fabric imports torchmetrics, if it is installed, to learn its version, and torch's compiler for the
name of one class. The first takes four times as long as torch itself, the second as long. Nothing
here uses what Fabric does with them: it computes no metrics, and networks are compiled in place,
without that class.
"""

import sys
from importlib.abc import Loader
from types import ModuleType

from wcl.system.import_hook import add_hook, forget_parts


def _execute(loader: Loader, module: ModuleType) -> None:
    compiler = ModuleType("torch._dynamo")
    compiler.OptimizedModule = type("OptimizedModule", (), {})  # type: ignore[attr-defined]
    absent: dict[str, ModuleType | None] = {"torch._dynamo": compiler, "torchmetrics": None}
    absent = {name: instead for name, instead in absent.items() if name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]  # None: not installed
    try:
        loader.exec_module(module)
        return
    except ImportError:  # of a version that needs more of them
        forget_parts(module)
    finally:
        for name in absent:
            del sys.modules[name]
    loader.exec_module(module)


def install() -> None:
    """Install the hook; further calls change nothing."""
    add_hook("lightning_fabric", _execute)
