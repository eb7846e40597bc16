"""The memory and the time that a run takes, estimated before its first step."""

import torch
from lightning_fabric import Fabric

from wcl.data import ArraySource
from wcl.distributed.world import World
from wcl.system.errors import InputError
from wcl.system.machine import available_memory, resident_memory
from wcl.system.progress import log
from wcl.system.units import duration, size
from wcl.training.probe import StepCost, probe_step
from wcl.training.setup import TrainingSetup

# Estimates differ from what is used by up to a third, so only more than that is refused.
_CLEARLY_MORE = 1.3
# What a step allocates besides: buffers of single layers, and gaps between blocks of memory.
# Without it, the estimates for four networks were 0.83 to 0.90 of the measured peaks.
_BUFFERS = 1.25
# Memory of each process that decodes photos, besides what it shares with the training process.
_WORKER = 150 * 2**20


def check_resources(setup: TrainingSetup, fabric: Fabric, world: World) -> float:
    """Log how much memory and time a run takes. All processes must call this.

    Returns:
        The estimated seconds of a step; 0 if it was not timed, as on resuming.

    Raises:
        InputError: it clearly needs more memory than there is.
    """
    step = 0 if setup.saved is None else int(setup.saved["step"])
    if step >= setup.total_steps:
        return 0.0
    device = fabric.device
    is_gpu = device.type == "cuda"
    used = torch.cuda.memory_allocated(device) if is_gpu else resident_memory()
    available = torch.cuda.mem_get_info(device)[0] if is_gpu else available_memory()
    cost = probe_step(setup, fabric, timed=step == 0)
    if cost is None:
        return 0.0
    extra = _extra_bytes(setup, cost, is_gpu)
    processes = 1 if is_gpu else world.local_size
    needed = (used + extra) * processes
    text = f"about {size(needed)} of {'GPU ' if is_gpu else ''}memory"
    if cost.seconds:
        speed = setup.sharding.batch_size / cost.seconds
        time = duration(setup.total_steps * cost.seconds)
        of_run = "" if setup.config.minutes else f" and {time}"  # its epochs are not known yet
        text += f"{of_run} at {_rounded(speed)} images/s"
    if extra * processes > available:
        suggestion = _suggestion(setup, available / (extra * processes))
        there = size(used * processes + available)
        problem = f"{text}, but only {there} are there; {suggestion}"
        if extra * processes > _CLEARLY_MORE * available:
            raise InputError(f"the run needs {problem}")
        text = f"warning: {problem}"
    log(text)
    return cost.seconds


def _rounded(speed: float) -> str:
    """Format a speed: whole numbers, but two digits of a low one."""
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"


def _extra_bytes(setup: TrainingSetup, cost: StepCost, is_gpu: bool) -> int:
    """Return the bytes that a process of the run will use and does not use yet."""
    count = round(_BUFFERS * (cost.updates + cost.activations))
    if is_gpu:
        return count + cost.weights
    crops = setup.neighbor_crops
    if crops is not None and setup.config.crops.bank == "memory":
        count += crops.bank.bytes // setup.sharding.world.size
    if not isinstance(setup.source, ArraySource):
        count += setup.loader.num_workers * _WORKER
    return count


def _suggestion(setup: TrainingSetup, share: float) -> str:
    """Return what would need less memory, of which there is this share of what is needed."""
    config, processes = setup.config, setup.sharding.world.size
    fitting = int((config.micro_batch_size or config.batch_size) * share / _CLEARLY_MORE)
    sizes = (n for n in range(fitting, 1, -1) if config.batch_size % n == n % processes == 0)
    micro_batch_size = next(sizes, 0)
    first = "a smaller --batch_size"
    if micro_batch_size:
        first = f"--micro_batch_size {micro_batch_size}"
    return f"try {first}, or a smaller --model.backbone or --image_size, or another recipe"
