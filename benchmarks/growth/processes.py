"""Number of processes: steps with the same global batch, on the same cores."""

import os
import socket
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from benchmarks.memory import Cost, extra_bytes
from benchmarks.micro_batch import random_views
from benchmarks.step import training_step
from wcl.config import ModelConfig, PretrainConfig
from wcl.distributed.launch import launch
from wcl.system import machine
from wcl.system.progress import track

SIZES = (1, 2, 4)
_PIXELS, _STEPS = 32, 5
_MODEL = ModelConfig(backbone="resnet_small", stem="stride2", head_hidden_dim=512)


class _Share(NamedTuple):
    """Cost of a step in one process."""

    seconds: float
    cpu_seconds: float
    gigabytes: float


def measure(rounds: int, batch_size: int = 128) -> dict[str, dict[int, Cost]]:
    """Return the costs of a step by number of processes.

    Args:
        rounds: times that every number of processes is started, in turn.
        batch_size: images of a step, over all processes.

    Returns:
        elapsed: elapsed seconds, and the peak memory of all processes together.
        computed: seconds that all processes compute, without those that they wait.
    """
    turns = [processes for _ in range(rounds) for processes in SIZES]
    shares: dict[int, list[list[_Share]]] = {processes: [] for processes in SIZES}
    for processes in track(turns, "processes"):
        shares[processes].append(_run(processes, batch_size))
    elapsed, computed = {}, {}
    for processes, runs in shares.items():
        gigabytes = statistics.median(sum(one.gigabytes for one in run) for run in runs)
        seconds = min(max(one.seconds for one in run) for run in runs)
        cpu_seconds = min(sum(one.cpu_seconds for one in run) for run in runs)
        elapsed[processes] = Cost(seconds, gigabytes)
        computed[processes] = Cost(cpu_seconds, gigabytes)
    return {"elapsed": elapsed, "computed": computed}


def _run(processes: int, batch_size: int) -> list[_Share]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])  # importing torch takes seconds
    with ProcessPoolExecutor(processes, context) as pool:
        ranks = [
            pool.submit(_share, rank, processes, port, batch_size) for rank in range(processes)
        ]
        return [rank.result() for rank in ranks]


def _share(rank: int, processes: int, port: int, batch_size: int) -> _Share:
    machine.keep_freed_memory()
    if processes > 1:
        os.environ |= _as_torchrun(rank, processes, port)
    threads = max(1, machine.cores() // processes)
    config = PretrainConfig(data="none", out="none", batch_size=batch_size, threads=threads)
    seconds: list[float] = []
    computed: list[float] = []

    def take_steps() -> None:
        with launch(config, resume=False) as (fabric, world):
            step = training_step("wcl", _MODEL, _PIXELS, engine=(fabric, world))
            views = random_views(batch_size // processes, _PIXELS)
            for _ in range(1 + _STEPS):
                began, computed_before = time.perf_counter(), time.process_time()
                step(views)
                seconds.append(time.perf_counter() - began)
                computed.append(time.process_time() - computed_before)

    extra = extra_bytes(take_steps)
    return _Share(min(seconds[1:]), statistics.median(computed[1:]), extra / 1e9)


def _as_torchrun(rank: int, processes: int, port: int) -> dict[str, str]:
    """Return the environment variables by which `launch` finds the other processes."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "growth",
    }
