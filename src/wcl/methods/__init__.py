"""The methods: embeddings of views in, named losses out. A new method is one file here."""

from collections.abc import Callable

from wcl.config import LossConfig
from wcl.methods.method import Losses, Method
from wcl.methods.simclr import SimCLR
from wcl.methods.wcl import WCL

__all__ = ["METHODS", "WCL", "Losses", "Method", "SimCLR", "build_method"]

METHODS: dict[str, Callable[[LossConfig, bool], Method]] = {"simclr": SimCLR, "wcl": WCL}


def build_method(name: str, config: LossConfig, crops: bool = False) -> Method:
    """The method of that name; the command line has checked the name."""
    return METHODS[name](config, crops)
