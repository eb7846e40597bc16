"""CIFAR-10 and CIFAR-100 through torchvision, downloaded on first use and checked."""

import os
import sys
from pathlib import Path

import torch

from wcl.data.source import ArraySource, Source
from wcl.system.errors import InputError


def cifar(name: str, split: str) -> Source:
    """`cifar10` or `cifar100`, kept in the folder WCL_DATA or in ~/.cache/wcl.

    torchvision compares the files with their published MD5 sums before it reads them.

    Raises:
        InputError: they are not there and cannot be downloaded, or are damaged.
    """
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    root = _root(name)
    train = split != "test"
    try:
        data = kind(root, train, download=False)
    except RuntimeError:  # not there, or not what was published
        print(f"downloading {name} to {root}", file=sys.stderr)
        try:
            data = kind(root, train, download=True)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"{name}: could not be downloaded to {root} ({error}); put torchvision's "
                f"{kind.base_folder} there, or set WCL_DATA to a folder that has it"
            ) from error
    pixels = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
    return ArraySource(name, pixels, torch.tensor(data.targets), data.classes)


def _root(name: str) -> Path:
    if "WCL_DATA" in os.environ:
        return Path(os.environ["WCL_DATA"])
    try:
        return Path.home() / ".cache" / "wcl"
    except RuntimeError as error:
        raise InputError(
            f"{name}: you have no home folder to keep it in; set WCL_DATA to a folder for it"
        ) from error
