"""The training loop."""

import dataclasses
import time
from collections.abc import Sequence
from functools import partial

import torch
from lightning_fabric import Fabric

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
from wcl.system.run_folder import RunFolder
from wcl.training.callback import Callback
from wcl.training.checkpoint import checkpoint_status, save_checkpoint
from wcl.training.monitor import Monitor
from wcl.training.not_finite import keep_batch
from wcl.training.optimizers import build_optimizer, lr_at, peak_lr, set_lr
from wcl.training.provenance import typed
from wcl.training.setup import (
    TrainingSetup,
    begin,
    check_same_on_all_ranks,
    prepare,
    record_provenance,
)
from wcl.training.state import capture_state, restore_state
from wcl.training.step import MultiViewModel, gradient_step
from wcl.training.stop import stop_on_signals


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
        callbacks: called at the end of every epoch.
        quiet: whether to leave out what to do next, for commands that train as a part of more.

    Returns:
        Whether the run finished; if not, a signal stopped it and it can be resumed.
    """
    if config.loss is None:
        config = dataclasses.replace(config, loss=method_settings(config.method)())
    if config.data:
        config = dataclasses.replace(config, data=absolute(config.data))
    folder = RunFolder(config.out)
    if restarted() and folder.config.exists():
        resume = True
    machine.keep_freed_memory()
    try:
        with launch(config, resume) as (fabric, world):
            on_all_ranks = world.run_on_all_ranks
            setup = on_all_ranks(lambda: prepare(config, resume, fabric.device, world, callbacks))
            on_all_ranks(lambda: check_same_on_all_ranks(setup, world))
            on_all_ranks(lambda: begin(setup, resume, world))
            try:
                on_all_ranks(lambda: record_provenance(setup, recipe, resume, fabric.device, world))
                return train(setup, fabric, world, callbacks, quiet)
            except NotFinite as error:
                keep_batch(setup, error.step)
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
        command = typed("wcl", "pretrain", "--out", config.out, "--resume")
        left = f"{checkpoint_status(folder.checkpoint)}, continue with: {command}"
        started = folder.checkpoint.parent.exists()
        raise ConnectionLost(f"{error}; {left if started else 'the run had not begun'}") from error


def train(
    setup: TrainingSetup,
    fabric: Fabric,
    world: World,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> bool:
    """Run the loop; return whether it finished."""
    config, folder, method = setup.config, setup.folder, setup.method
    per_epoch, total = setup.steps_per_epoch, setup.total_steps
    warmup = min(round(config.optim.warmup_epochs * per_epoch), total // 2)
    peak = peak_lr(config.optim, config.batch_size)
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    synchronize_batch_norm(method, world, fabric.device)
    if config.compile:
        setup.encoder.compile()
    model, optimizer = fabric.setup(
        MultiViewModel(method, world), build_optimizer(method, config.optim, peak)
    )
    labels = setup.source.labels
    classes = None if labels is None else labels.to(fabric.device)
    neighbor_crops = setup.neighbor_crops
    step = 0 if setup.saved is None else int(setup.saved["step"])
    monitor = Monitor(folder, config, per_epoch, setup.source, step, world)
    if setup.saved is not None:
        world.run_on_all_ranks(lambda: restore_state(setup, optimizer, monitor, fabric))
    if step == total:
        monitor.log(f"{config.out}: already finished, {config.epochs} of {config.epochs} epochs")
        if world.is_rank_zero and not folder.encoder.is_file():
            save_encoder(setup, config.epochs)

    def save(finished_epochs: int | None) -> None:
        state = capture_state(setup, step, optimizer, monitor, fabric)

        def write() -> None:
            if world.is_rank_zero:
                if finished_epochs is not None:
                    save_encoder(setup, finished_epochs)
                save_checkpoint(state, config, folder.checkpoint)

        with stop.deferred():
            world.run_on_all_ranks(write)

    model.train()
    with monitor, stop_on_signals(world) as stop:
        monitor.log(
            f"{len(setup.source):,} images, {per_epoch} steps an epoch; {config.model.backbone} at "
            f"{config.image_size}×{config.image_size} pixels on {fabric.device}"
            + (f", {world.size} processes" if world.size > 1 else "")
        )
        if 0 < step < total:
            monitor.log(f"continuing after step {step} of {total}")
        if neighbor_crops is not None:
            where = "on disk" if config.crops.bank == "disk" else "in memory"
            monitor.log(f"feature bank: {neighbor_crops.bank.describe()} {where}")
        for epoch in range(step // per_epoch, config.epochs):
            waiting_since = time.perf_counter()
            for batch in setup.loader.epoch(epoch, setup.view_specs(epoch), step % per_epoch):
                monitor.waited(time.perf_counter() - waiting_since)
                monitor.skipped(batch.skipped)
                shard = setup.sharding.shard(batch.global_index, batch.positions, fabric.device)
                lr = lr_at(step, peak, warmup, total)
                step += 1
                if len(shard) >= 2:
                    set_lr(optimizer, lr)
                    optimizer.zero_grad(set_to_none=True)
                    taken = gradient_step(fabric, model, method, batch.views, shard, world)
                    if neighbor_crops is not None:
                        neighbor_crops.bank.store(shard.index_by_rank, taken.features)
                    monitor.step(step, lr, taken, shard, classes)
                    optimizer.step()
                    method.after_step(step / total)
                # In the last step of an epoch, the end of the epoch comes first.
                if step % per_epoch and world.any(bool(stop)):
                    break
                waiting_since = time.perf_counter()
            else:
                finished = epoch + 1
                method.end_of_epoch(None if neighbor_crops is None else neighbor_crops.bank)
                measures = [partial(callback, setup, finished) for callback in callbacks]
                measures = measures if world.is_rank_zero else []
                if neighbor_crops is not None:
                    measures.insert(0, partial(neighbor_crops.end_of_epoch, epoch))
                monitor.epoch(step, finished, measures)
                if finished % config.save_every == 0 or finished == config.epochs:
                    save(finished)
            if step < total and world.any(bool(stop)):
                save(finished_epochs=None)
                command = typed("wcl", "pretrain", "--out", config.out, "--resume")
                next_step = "" if quiet else f"; continue with: {command}"
                monitor.log(f"stopped after step {step} of {total}{next_step}")
                return False
        if not quiet:
            monitor.log(
                f"the run is in {config.out}; open it with wcl.load, measure it with wcl eval, "
                "look at it with wcl report"
            )
    return True


def save_encoder(setup: TrainingSetup, epochs: int) -> None:
    """Write the encoder as it is after so many epochs."""
    encoder = setup.encoder
    encoder.description = dataclasses.replace(encoder.description, epoch=epochs)
    encoder.save(setup.folder.encoder)
