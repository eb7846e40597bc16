"""Joining the processes of a run: those that torchrun or SLURM started, or others of our own.

`--devices 2` on one machine starts the others from here, each with the command `wcl pretrain` and
the same settings. torchrun and SLURM start all of them, and say in the environment which is which.
"""

import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from wcl.config import PretrainConfig
from wcl.config.run_config import write_config
from wcl.config.validation import check
from wcl.distributed.rendezvous import fresh_store
from wcl.distributed.world import World
from wcl.system import machine
from wcl.system.errors import ConnectionLost, InputError
from wcl.system.progress import console

# Batch norms are synchronized, so the statistics of one process need not be sent to the others.
# (The name is that of torch 2.13, and the one before.)
_NAME = "forward_sync_buffers"
_BUFFERS_STAY: dict[str, Any] = {
    _NAME if _NAME in signature(DistributedDataParallel).parameters else "broadcast_buffers": False
}
# What a process that another one started gets to end by itself.
_SECONDS_TO_END = 30


@contextmanager
def launch(config: PretrainConfig, resume: bool) -> Iterator[tuple[Fabric, World]]:
    """Be one of the processes of a run, from here to the end of the context.

    Raises:
        InputError: the settings cannot be, or do not fit the number of processes.
        ConnectionLost: another process died or did not answer in time.
    """
    device = machine.best_device(config.device)
    environment = _environment()
    if environment is None:
        check(config)
    if environment is None and config.devices == 1:
        machine.use_threads(config.threads)
        yield Fabric(accelerator=device, devices=1, **_precision(config)), World()
        return
    with ExitStack() as started:
        others: list[subprocess.Popen[bytes]] = []
        if environment is None:
            _check(config, config.devices, device)
            others = started.enter_context(_others(config, resume))
            environment = TorchElasticEnvironment()
        size, here = environment.world_size(), _processes_here(environment)
        if device == "cpu":
            machine.use_threads(config.threads or max(1, machine.cores() // here))
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        console().quiet = environment.global_rank() > 0  # one process speaks for all
        fabric = Fabric(
            accelerator=device,
            devices=here,
            num_nodes=size // here,
            **_precision(config, environment),
            strategy=DDPStrategy(gradient_as_bucket_view=True, **_BUFFERS_STAY),
        )
        try:
            wait = timedelta(minutes=config.timeout_minutes if config.timeout_minutes > 0 else 1)
            _meet(environment, fabric.device, wait)
            fabric.launch()
            world = World(environment.global_rank(), size, here)
            # Only now, so that what is wrong on one process is told to all.
            world.run_on_all_ranks(lambda: check(config))
            world.run_on_all_ranks(lambda: _check(config, size, device))
            yield fabric, world
        except (RuntimeError, dist.DistError) as error:
            if not _of_communication(error):
                raise
            raise ConnectionLost(_failure(config, others, error)) from error
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _meet(environment: ClusterEnvironment, device: torch.device, timeout: timedelta) -> None:
    """Open the connections between the processes, which Fabric then finds there."""
    rank, size = environment.global_rank(), environment.world_size()
    address = f"tcp://{environment.main_address}:{environment.main_port}"
    store, _, _ = next(rendezvous(address, rank, size, timeout=timeout))
    dist.init_process_group(
        # What the host has to say goes through gloo, also beside GPUs.
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=fresh_store(store, rank, size, timeout),
        rank=rank,
        world_size=size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )


class _DoubleThroughout(DoublePrecision):
    """Double precision for the losses too, which Fabric would compute in single precision."""

    def convert_output(self, data: Any) -> Any:
        return data


def _precision(config: PretrainConfig, *plugins: Any) -> dict[str, Any]:
    """Fabric takes the double precision of our own among the plugins, others by their name."""
    if config.precision == "64-true":
        return {"plugins": [*plugins, _DoubleThroughout()]}
    return {"plugins": list(plugins), "precision": config.precision}


def restarted() -> bool:
    """Whether torchrun started this process again after a failure."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def _environment() -> ClusterEnvironment | None:
    """Who started the processes of this run, if anybody did."""
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    if _number("SLURM_NTASKS", 1) > 1 and SLURMEnvironment.detect():
        return SLURMEnvironment(auto_requeue=False)
    return None


def _processes_here(environment: ClusterEnvironment) -> int:
    """How many processes of the run are on this machine."""
    if isinstance(environment, SLURMEnvironment):
        return environment.world_size() // _number("SLURM_NNODES", 1)
    return _number("LOCAL_WORLD_SIZE", 1)


def _number(variable: str, default: int) -> int:
    """What the environment says, as whoever started the processes of a run put it there."""
    value = os.environ.get(variable, str(default))
    if not value.isdecimal() or (count := int(value)) < default:
        raise InputError(f"{variable}: {value!r} in the environment is not a number of processes")
    return count


def _check(config: PretrainConfig, size: int, device: str) -> None:
    """Raise InputError if the settings cannot be shared out over so many processes."""
    if device == "mps" and size > 1:
        raise InputError("--device: several processes need cpu or cuda, not mps")
    if device == "cuda" and config.devices > torch.cuda.device_count():
        raise InputError(f"--devices: there are {torch.cuda.device_count()} GPUs")
    for name, images in (
        ("batch_size", config.batch_size),
        ("micro_batch_size", config.micro_batch_size),
    ):
        if images % size:
            below = images // size * size
            fitting = f"{below} or {below + size}" if below else f"{size}"
            raise InputError(
                f"--{name}: {images} images do not divide by {size} processes; use {fitting}"
            )


@contextmanager
def _others(config: PretrainConfig, resume: bool) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the other processes of a run on this machine, and see that they end."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        settings = Path(folder) / "settings.yaml"
        write_config(config, settings)
        command = [sys.executable, "-m", "wcl", "pretrain", "--config", str(settings)]
        command += [f"--out={config.out}", *(["--resume"] if resume else [])]
        free.close()
        others = []
        here, before = _place(0, config.devices, port), os.environ.copy()
        try:
            for rank in range(1, config.devices):
                place = _place(rank, config.devices, port)
                others.append(
                    # In a group of its own: Ctrl-C is for the first process, which tells the rest.
                    subprocess.Popen(
                        command,
                        env=before | place,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                    )
                )
            os.environ.update(here)
            yield others
            with suppress(subprocess.TimeoutExpired):  # all that it did is saved
                for other in others:
                    other.wait(_SECONDS_TO_END)
        finally:
            for other in others:
                other.kill()
                other.wait()
            for name in here:
                os.environ.pop(name, None)
            os.environ.update({name: before[name] for name in here if name in before})


def _place(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun would say to a process of one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "wcl",
    }


def _of_communication(error: Exception) -> bool:
    words = str(error)
    return isinstance(error, dist.DistError) or "gloo" in words or "connectFullMesh" in words


def _failure(
    config: PretrainConfig, others: list[subprocess.Popen[bytes]], error: Exception
) -> str:
    """Return why the connection was lost, naming the process that ended where that is known."""
    with suppress(subprocess.TimeoutExpired):  # its end may come a moment after its last message
        for other in others:
            other.wait(1)
    ended = [(rank, other.poll()) for rank, other in enumerate(others, 1)]
    dead = [f"process {rank} ended with status {status}" for rank, status in ended if status]
    slow = "Timed out" in str(error) or "timeout" in str(error).lower()
    return ", ".join(dead) or (
        f"another process did not answer within {config.timeout_minutes:g} minutes "
        "(--timeout_minutes)"
        if slow
        else "the connection to another process was lost"
    )
