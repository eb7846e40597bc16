"""Hooks on the import of packages that are not ours; no other module has to know of them."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeAlias

Execute: TypeAlias = Callable[[importlib.abc.Loader, ModuleType], None]
"""Execute a module with its loader."""


class _HookedLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, execute: Execute) -> None:
        self._loader = loader
        self._execute = execute

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._execute(self._loader, module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, package: str, execute: Execute) -> None:
        self.package = package
        self._execute = execute

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookedLoader(spec.loader, self._execute)
        return spec


def add_hook(package: str, execute: Execute) -> None:
    """Let a function execute a package when it is imported; a second hook changes nothing."""
    hooked = {finder.package for finder in sys.meta_path if isinstance(finder, _Finder)}
    if package not in hooked:
        sys.meta_path.insert(0, _Finder(package, execute))


def forget_parts(module: ModuleType) -> None:
    """Remove what a failed import has loaded of a package, so that it can be imported anew."""
    prefix = f"{module.__name__}."
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        del sys.modules[name]
        vars(module).pop(name.removeprefix(prefix), None)  # otherwise it is reused
