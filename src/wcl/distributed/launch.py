"""Launching the processes of a run.

torchrun and SLURM start all processes and describe each one's role in the environment. Without
them, `--devices 2` starts the second process from here, with the command `wcl pretrain` and the
same settings.
"""

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from inspect import signature
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
from wcl.config.validation import check
from wcl.distributed.child_processes import Children, start_children
from wcl.distributed.rendezvous import fresh_store
from wcl.distributed.world import World
from wcl.system import machine
from wcl.system.errors import ConnectionLost, InputError
from wcl.system.progress import console

# Batch norms are synchronized, so DDP need not broadcast their statistics. torch 2.13 renamed the
# option.
_DDP_PARAMETERS = signature(DistributedDataParallel).parameters
_SYNC_BUFFERS = next(
    name for name in ("forward_sync_buffers", "broadcast_buffers") if name in _DDP_PARAMETERS
)


@contextmanager
def launch(config: PretrainConfig, resume: bool) -> Iterator[tuple[Fabric, World]]:
    """Run the context in every process of a run.

    Raises:
        InputError: the settings are invalid, or do not fit the number of processes.
        ConnectionLost: another process died or did not answer in time.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    device = machine.best_device(config.device)
    environment = _cluster_environment()
    if environment is None:
        check(config)
        if config.devices == 1:
            machine.use_threads(config.threads)
            yield Fabric(accelerator=device, devices=1, **_precision(config)), World()
            return
    with ExitStack() as stack:
        children: Children = []
        if environment is None:
            _check_processes(config, config.devices, device)
            children = stack.enter_context(start_children(config, resume))
            environment = TorchElasticEnvironment()
        size, local_size = environment.world_size(), _local_size(environment)
        if device == "cpu":
            machine.use_threads(config.threads or max(1, machine.cores() // local_size))
        console().quiet = environment.global_rank() > 0
        ddp_options: dict[str, Any] = {_SYNC_BUFFERS: False}
        fabric = Fabric(
            accelerator=device,
            devices=local_size,
            num_nodes=size // local_size,
            **_precision(config, environment),
            strategy=DDPStrategy(gradient_as_bucket_view=True, **ddp_options),
        )
        try:
            minutes = config.timeout_minutes if config.timeout_minutes > 0 else 1
            _init_process_group(environment, fabric.device, timedelta(minutes=minutes))
            fabric.launch()
            world = World(environment.global_rank(), size, local_size)
            # After connecting, so that an error on one process ends all of them.
            world.run_on_all_ranks(lambda: check(config))
            world.run_on_all_ranks(lambda: _check_processes(config, size, device))
            yield fabric, world
        except (RuntimeError, dist.DistError) as error:
            if not _is_connection_error(error):
                raise
            raise ConnectionLost(_connection_failure(config, children, error)) from error
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _init_process_group(
    environment: ClusterEnvironment, device: torch.device, timeout: timedelta
) -> None:
    """Connect the processes; Fabric uses the process group that it finds."""
    rank, size = environment.global_rank(), environment.world_size()
    address = f"tcp://{environment.main_address}:{environment.main_port}"
    store, _, _ = next(rendezvous(address, rank, size, timeout=timeout))
    dist.init_process_group(
        # gloo is for tensors on the CPU, which runs on GPUs exchange too.
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
    """Return Fabric's arguments for the precision, which may be a plugin, and the plugins."""
    if config.precision == "64-true":
        return {"plugins": [*plugins, _DoubleThroughout()]}
    return {"plugins": list(plugins), "precision": config.precision}


def restarted() -> bool:
    """Return whether torchrun restarted this process after a failure."""
    return _count_from_environment("TORCHELASTIC_RESTART_COUNT", 0) > 0


def _cluster_environment() -> ClusterEnvironment | None:
    """Return the launcher that started this process; None if it was started by itself."""
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    if _count_from_environment("SLURM_NTASKS", 1) > 1 and SLURMEnvironment.detect():
        return SLURMEnvironment(auto_requeue=False)
    return None


def _local_size(environment: ClusterEnvironment) -> int:
    """Return the number of processes of the run on this machine."""
    if isinstance(environment, SLURMEnvironment):
        return environment.world_size() // _count_from_environment("SLURM_NNODES", 1)
    return _count_from_environment("LOCAL_WORLD_SIZE", 1)


def _count_from_environment(variable: str, default: int) -> int:
    """Return a number that a launcher put into the environment; the default is its minimum."""
    value = os.environ.get(variable, str(default))
    if not value.isdecimal() or (count := int(value)) < default:
        raise InputError(
            f"{variable}: {value!r} in the environment is not a number of at least {default}; "
            "unset it, or start the run with torchrun or SLURM"
        )
    return count


def _check_processes(config: PretrainConfig, size: int, device: str) -> None:
    """Raise InputError if a run with these settings cannot have this many processes."""
    if device == "mps" and size > 1:
        raise InputError("--device: several processes need cpu or cuda, not mps")
    gpus = torch.cuda.device_count()
    if device == "cuda" and config.devices > gpus:
        raise InputError(f"--devices: this machine has {gpus} GPUs, not {config.devices}")
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


def _is_connection_error(error: Exception) -> bool:
    message = str(error)
    return isinstance(error, dist.DistError) or "gloo" in message or "connectFullMesh" in message


def _connection_failure(config: PretrainConfig, children: Children, error: Exception) -> str:
    """Return why the connection was lost, naming the process that ended if it is a child."""
    with suppress(subprocess.TimeoutExpired):  # it may end a moment after the connection
        for child in children:
            child.wait(1)
    ended = [(rank, child.poll()) for rank, child in enumerate(children, 1)]
    if failed := [f"process {rank} ended with status {status}" for rank, status in ended if status]:
        return ", ".join(failed)
    if "timed out" in str(error).lower() or "timeout" in str(error).lower():
        minutes = f"{config.timeout_minutes:g} minutes"
        return f"another process did not answer within {minutes} (--timeout_minutes)"
    return "the connection to another process was lost"
