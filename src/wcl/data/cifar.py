"""CIFAR-10 and CIFAR-100 through torchvision, downloaded on first use."""

import os
import sys
from pathlib import Path

import torch

from wcl.data.source import ArraySource, Source
from wcl.system.errors import InputError


def cifar(name: str, split: str) -> Source:
    """Open `cifar10` or `cifar100` in the folder WCL_DATA or ~/.cache/wcl.

    torchvision checks the published MD5 sums of the files before it reads them.

    Raises:
        InputError: the files are missing or damaged and cannot be downloaded.
    """
    from torchvision.datasets import CIFAR10, CIFAR100

    dataset_class = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    root = _root(name)
    train = split != "test"
    try:
        data = dataset_class(root, train, download=False)
    except RuntimeError:  # missing, or a checksum mismatch
        print(f"downloading {name} to {root}", file=sys.stderr)
        try:
            data = dataset_class(root, train, download=True)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"{name}: could not be downloaded to {root} ({error}); put torchvision's "
                f"{dataset_class.base_folder} there, or set WCL_DATA to a folder that has it"
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
            f"{name}: there is no home folder to download it to; set WCL_DATA to a folder"
        ) from error
