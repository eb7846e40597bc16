"""The methods, one file each, found by name or by import path."""

from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from wcl.methods.method import Losses, Method, RunInfo
from wcl.system.errors import InputError, did_you_mean
from wcl.system.paths import one_line

__all__ = ["METHODS", "Losses", "Method", "RunInfo", "find_method", "method_settings"]

METHODS = {
    "adpclr": "wcl.methods.adpclr:AdpCLR",
    "byol": "wcl.methods.byol:BYOL",
    "fncancel": "wcl.methods.fncancel:FNCancel",
    "instdisc": "wcl.methods.instdisc:InstDisc",
    "meanshift": "wcl.methods.meanshift:MeanShift",
    "mochi": "wcl.methods.mochi:MoCHi",
    "moco": "wcl.methods.moco:MoCo",
    "nnclr": "wcl.methods.nnclr:NNCLR",
    "pcl": "wcl.methods.pcl:PCL",
    "simclr": "wcl.methods.simclr:SimCLR",
    "simclrv2": "wcl.methods.simclrv2:SimCLRv2",
    "simsiam": "wcl.methods.simsiam:SimSiam",
    "softwcl": "wcl.methods.softwcl:SoftWCL",
    "supcon": "wcl.methods.supcon:SupCon",
    "supervised": "wcl.methods.supervised:Supervised",
    "swav": "wcl.methods.swav:SwAV",
    "wcl": "wcl.methods.wcl:WCL",
}


def find_method(name: str) -> type[Method]:
    """Return the class of a method by its registered name or by its import path.

    Args:
        name: a name in `METHODS`, or `package.module:Class`.

    Raises:
        InputError: there is no such method, or its module cannot be imported.

    >>> find_method("simclr").__name__
    'SimCLR'
    """
    module, colon, attribute = METHODS.get(name, name).partition(":")
    if not colon:
        raise InputError(
            f"--method: no method {name}{did_you_mean(name.lower(), METHODS)}; use one of "
            f"{', '.join(METHODS)}, or package.module:Class for a method of your own"
        )
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise InputError(
            f"--method: {name} cannot be imported ({error}); add the folder of the module to "
            "PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        reason = one_line(f"{type(error).__name__}: {error}")
        raise InputError(f"--method: {name} cannot be imported ({reason}); fix it") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"--method: {name} is not a subclass of wcl.methods.Method")
    if not isinstance(getattr(found, "Settings", None), type) or not is_dataclass(found.Settings):
        raise InputError(f"--method: {name} has no dataclass `Settings`; see wcl.methods.Method")
    return found


def method_settings(name: str) -> type[Any]:
    """Return the dataclass of a method's settings."""
    return find_method(name).Settings
