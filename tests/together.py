"""Functions run by several real processes at once."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from wcl.distributed.world import World

_SECONDS = 60


def together(size: int, folder: Path, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What `function(world, *args)` returns on each of `size` processes; tensors and plain values.

    The function must be importable: a spawned process finds it by its module and name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # `tests` is where pytest put it
    try:
        start_processes(_one, (size, str(folder), function, args), size, start_method="spawn")
    finally:
        if old is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = old
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _one(rank: int, size: int, folder: str, function: Callable[..., Any], args: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=_SECONDS),
    )
    found = function(World(rank, size), *args)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()
