"""The training loop."""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from torch.optim import Optimizer

from wcl.config import PretrainConfig
from wcl.data import absolute
from wcl.distributed.batch_norm import synchronize_batch_norm
from wcl.distributed.launch import launch, restarted
from wcl.distributed.world import World
from wcl.methods import method_settings
from wcl.system import machine
from wcl.system.errors import (
    ConnectionLost,
    NotFinite,
    ReportedByRankZero,
    RunError,
    WorkerLost,
)
from wcl.system.paths import expanded
from wcl.system.progress import log
from wcl.system.run_folder import RunFolder
from wcl.training.advice import advice
from wcl.training.callback import Callback
from wcl.training.checkpoint import checkpoint_status, save_checkpoint
from wcl.training.estimate import check_resources
from wcl.training.monitor import Monitor
from wcl.training.next_commands import next_commands
from wcl.training.not_finite import save_batch
from wcl.training.optimizers import build_optimizer, set_lr
from wcl.training.plain_features import fill_with_plain_features, plain_features
from wcl.training.precision import with_precision
from wcl.training.provenance import shell_command
from wcl.training.setup import (
    TrainingSetup,
    check_same_on_all_ranks,
    prepare,
    prepare_folder,
    record_provenance,
)
from wcl.training.state import capture_state, restore_state
from wcl.training.step import MultiViewModel, gradient_step
from wcl.training.stop import stop_on_signals
from wcl.training.time_limit import plan_epochs, settle_epochs

_PRECISIONS = {"bf16-mixed": " in bfloat16", "16-mixed": " in float16", "64-true": " in float64"}


def run(
    config: PretrainConfig,
    resume: bool = False,
    recipe: str = "",
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> bool:
    """Train with these settings.

    Args:
        config: the settings.
        resume: whether to continue the run in `config.out`.
        recipe: name of the recipe that the settings come from, for the provenance.
        callbacks: called at the end of every epoch, and before the first if the run starts from
            pretrained weights.
        quiet: whether to leave out what to do next, for commands that train as a part of more.

    Returns:
        Whether the run finished; if not, a signal stopped it and it can be resumed.

    Raises:
        KeyboardInterrupt: a signal came before the first step, or in the last one of a run that is
            part of more.
    """
    if config.loss is None:
        config = dataclasses.replace(config, loss=method_settings(config.method)())
    if config.data:
        config = dataclasses.replace(config, data=absolute(config.data))
    if config.model.weights not in ("", "timm"):
        weights = str(expanded(config.model.weights).absolute())
        model = dataclasses.replace(config.model, weights=weights)
        config = dataclasses.replace(config, model=model)
    config = with_precision(config)
    folder = RunFolder(config.out)
    if restarted() and folder.config.exists():
        resume = True
    machine.keep_freed_memory()
    try:
        with launch(config, resume) as (fabric, world), ExitStack() as stack:
            on_all_ranks = world.run_on_all_ranks
            setup = on_all_ranks(lambda: prepare(config, resume, fabric.device, world, callbacks))
            on_all_ranks(lambda: check_same_on_all_ranks(setup, world))
            with stop_on_signals(world):
                step_seconds = on_all_ranks(lambda: check_resources(setup, fabric, world))
                if setup.config.minutes:
                    on_all_ranks(lambda: plan_epochs(setup, step_seconds, world))
            if world.is_rank_zero and not resume and not quiet:
                for line in advice(setup):
                    log(f"warning: {line}")
            on_all_ranks(lambda: prepare_folder(setup, resume, world, stack))
            try:
                on_all_ranks(lambda: record_provenance(setup, recipe, resume, fabric.device, world))
                return train(setup, fabric, world, callbacks, quiet)
            except NotFinite as error:
                save_batch(setup, error.step)
                if not world.is_rank_zero:
                    raise ReportedByRankZero(1) from error
                raise RunError(
                    f"{error}; the images of that step are in {folder.not_finite}, "
                    f"{checkpoint_status(folder.checkpoint)}; try a smaller --optim.lr"
                ) from error
            except WorkerLost as error:
                raise RunError(
                    f"{error}; {checkpoint_status(folder.checkpoint)}, continue with --resume"
                ) from error
            except OSError as error:  # a full disk, a folder that disappeared
                raise RunError(
                    f"{error.filename or folder.path}: cannot be written ({error.strerror}); "
                    f"{checkpoint_status(folder.checkpoint)}; fix this, then continue with --resume"
                ) from error
    except ConnectionLost as error:
        outcome = "the run had not started"
        if folder.checkpoint.parent.exists():
            status = checkpoint_status(folder.checkpoint)
            outcome = f"{status}, continue with: {_resume_command(config)}"
        raise ConnectionLost(f"{error}; {outcome}") from error


def train(
    setup: TrainingSetup,
    fabric: Fabric,
    world: World,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> bool:
    """Run the training loop; return whether it finished."""
    config, method, crops = setup.config, setup.method, setup.neighbor_crops
    per_epoch = setup.steps_per_epoch
    model, optimizer = _set_up_model(setup, fabric, world, setup.schedule.peak)
    step = 0 if setup.saved is None else int(setup.saved["step"])
    monitor = Monitor(setup.folder, config, per_epoch, setup.source, step, world)
    if setup.saved is not None:
        world.run_on_all_ranks(lambda: restore_state(setup, optimizer, monitor, fabric))

    def save(with_encoder: bool) -> None:
        state = capture_state(setup, step, optimizer, monitor, fabric)

        def write() -> None:
            if world.is_rank_zero:
                if with_encoder:
                    _save_encoder(setup, step // per_epoch)
                save_checkpoint(state, setup.config, setup.folder.checkpoint)

        with stop.deferred():
            world.run_on_all_ranks(write)
        stop.unsaved = False

    remedy = "" if quiet else f"; continue with: {_resume_command(config)}"
    with monitor.opened(), stop_on_signals(world, remedy) as stop:
        _log_start(setup, step, monitor, fabric.device)
        if step == setup.total_steps and world.is_rank_zero and not setup.folder.encoder.is_file():
            _save_encoder(setup, config.epochs)
        if step == 0 and config.model.weights and world.is_rank_zero:
            monitor.start([partial(callback, setup, 0) for callback in callbacks])
        if step == 0 and method.needs_features:
            method.start(plain_features(setup, world))
        model.train()
        while step < setup.total_steps:
            epoch = step // per_epoch
            waiting_since = time.perf_counter()
            for batch in setup.loader.epoch(epoch, setup.view_specs(epoch), step % per_epoch):
                monitor.add_wait(time.perf_counter() - waiting_since)
                monitor.add_skipped(batch.skipped)
                shard = setup.sharding.shard(batch.global_index, batch.positions, fabric.device)
                lr = setup.schedule.lr(step)
                step += 1
                if len(shard) >= 2:
                    set_lr(optimizer, lr)
                    optimizer.zero_grad(set_to_none=True)
                    result = gradient_step(fabric, model, method, batch.views, shard, world)
                    stop.unsaved = True
                    if crops is not None and crops.stores_views:
                        crops.bank.store(shard.index_by_rank, result.features)
                    monitor.end_step(step, lr, result, shard)
                    optimizer.step()
                    method.after_step(step / setup.total_steps)
                # After the last step of an epoch, the epoch is finished before a stop.
                if step % per_epoch and world.any(bool(stop)):
                    break
                waiting_since = time.perf_counter()
            else:
                if crops is not None and crops.needs_plain_features(epoch):
                    fill_with_plain_features(crops.bank, setup, world)
                method.end_of_epoch(None if crops is None else crops.bank)
                measures = [] if crops is None else [partial(crops.end_of_epoch, epoch)]
                if world.is_rank_zero:
                    measures += [partial(callback, setup, epoch + 1) for callback in callbacks]
                seconds = monitor.end_epoch(step, epoch + 1, measures)
                if setup.config.minutes:  # until the first epoch has ended
                    settle_epochs(setup, seconds, monitor, world)
                if (epoch + 1) % config.save_every == 0 or step == setup.total_steps:
                    save(with_encoder=True)
            if step < setup.total_steps and world.any(bool(stop)):
                save(with_encoder=False)
                monitor.log(f"stopped after step {step} of {setup.total_steps}{remedy}")
                return False
        if quiet and world.any(bool(stop)):  # this run is finished, the rest of the command is not
            raise KeyboardInterrupt
        if not quiet:
            commands = "".join(f"\n  {line}" for line in next_commands(config, setup.source))
            monitor.log(f"the run is in {config.out}; next:{commands}")
    return True


def _set_up_model(
    setup: TrainingSetup, fabric: Fabric, world: World, lr: float
) -> tuple[Any, Optimizer]:
    """Return the model and its optimizer, wrapped by the engine."""
    config, method = setup.config, setup.method
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    synchronize_batch_norm(method, world, fabric.device)
    if config.compile:
        setup.encoder.compile()
    model, optimizer = fabric.setup(
        MultiViewModel(method, world), build_optimizer(method, config.optim, lr)
    )
    return model, optimizer


def _log_start(setup: TrainingSetup, step: int, monitor: Monitor, device: torch.device) -> None:
    config, processes = setup.config, setup.sharding.world.size
    if step == setup.total_steps:
        monitor.log(
            f"{config.out}: already finished, {config.epochs} of {config.epochs} epochs; "
            "--resume with more --epochs extends it"
        )
    steps = setup.steps_per_epoch
    monitor.log(
        f"{len(setup.source):,} images, {steps} step{'' if steps == 1 else 's'} per epoch; "
        f"{config.model.backbone} at {config.image_size}×{config.image_size} pixels on {device}"
        + _PRECISIONS.get(config.precision, "")
        + (f", {processes} processes" if processes > 1 else "")
    )
    if step == 0 and (weights := setup.encoder.description.weights):
        sha256 = setup.encoder.description.weights_sha256
        monitor.log(f"starting from the weights {weights}, SHA-256 {sha256[:12]}…")
    if setup.extension:
        monitor.log(setup.extension)
    if 0 < step < setup.total_steps:
        monitor.log(f"continuing after step {step} of {setup.total_steps}")
    if setup.neighbor_crops is not None:
        where = "on disk" if config.crops.bank == "disk" else "in memory"
        monitor.log(f"feature bank: {setup.neighbor_crops.bank.describe()} {where}")


def _save_encoder(setup: TrainingSetup, epochs: int) -> None:
    """Write the encoder, described as trained for this many epochs."""
    encoder = setup.encoder
    encoder.description = dataclasses.replace(encoder.description, epoch=epochs)
    encoder.save(setup.folder.encoder)


def _resume_command(config: PretrainConfig) -> str:
    return shell_command("wcl", "pretrain", "--out", config.out, "--resume")
