"""Pretraining: from settings to a run, in one loop."""

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from wcl.apps.views import write_neighbors
from wcl.config import PretrainConfig
from wcl.config.layering import default_recipe, settings
from wcl.data import absolute
from wcl.distributed.batch_norm import synchronized
from wcl.distributed.launch import joined, restarted
from wcl.distributed.sharding import BatchShard
from wcl.distributed.world import World
from wcl.methods import method_settings
from wcl.models.encoder import Encoder
from wcl.ops.randomness import RngState
from wcl.system import machine
from wcl.system.errors import InputError, NotFinite, ReportedByRankZero, RunError, WorkerLost
from wcl.system.progress import say
from wcl.system.run_folder import RunFolder
from wcl.system.signals import stop_signals
from wcl.training.checkpoint import save_checkpoint, what_is_left
from wcl.training.monitor import Monitor
from wcl.training.not_finite import keep_batch
from wcl.training.optimizers import build_optimizer, lr_at, peak_lr, set_lr
from wcl.training.provenance import typed
from wcl.training.setup import TrainingSetup, begin, must_be_alike, prepare, write_down
from wcl.training.step import MultiViewModel, gradient_step


def pretrain(recipe: str = "", resume: bool = False, **changes: Any) -> Path:
    """Pretrain an encoder and return the run's folder: the same as `wcl pretrain`.

    Args:
        recipe: a recipe's name; none for the defaults.
        resume: continue the run in `out` from its last checkpoint.
        changes: settings by name, those inside a group as a dict or with a double underscore:
            `data="photos", out="runs/a", optim={"lr": 0.1}, model__backbone="resnet50"`.

    Raises:
        KeyboardInterrupt: a signal stopped it after a step; `resume=True` goes on from there.
    """
    recipe = recipe or ("" if resume else default_recipe(str(changes.get("data", ""))))
    config = settings(recipe, changes, method_settings, resume)
    if not run(config, resume, recipe):
        raise KeyboardInterrupt
    return RunFolder(config.out).path


def run(
    config: PretrainConfig, resume: bool = False, recipe: str = "", part_of_more: bool = False
) -> bool:
    """Train from settings; whether it came to its end, or was stopped and can be resumed.

    Args:
        config: the settings.
        resume: whether to go on with the run in `config.out`.
        recipe: that the settings were made from, to be written down.
        part_of_more: whether a larger command makes it, which says what to do next.
    """
    if config.loss is None:
        config = dataclasses.replace(config, loss=method_settings(config.method)())
    if config.data:
        config = dataclasses.replace(config, data=absolute(config.data))
    if restarted() and RunFolder(config.out).config.exists():
        resume = True
    machine.keep_freed_memory()
    with joined(config, resume) as (fabric, world):
        prepared = world.run_on_all_ranks(lambda: prepare(config, resume, fabric.device, world))
        world.run_on_all_ranks(lambda: must_be_alike(config, prepared, world))
        world.run_on_all_ranks(lambda: begin(config, prepared, resume, world))
        try:
            world.run_on_all_ranks(
                lambda: write_down(config, prepared, recipe, resume, fabric.device, world)
            )
            return train(config, prepared, fabric, world, part_of_more)
        except NotFinite as error:
            keep_batch(prepared, error.step)
            if not world.is_rank_zero:
                raise ReportedByRankZero(1) from error
            folder = prepared.folder
            raise RunError(
                f"{error}; the images of that step are in {folder.not_finite}, "
                f"{what_is_left(folder.checkpoint)}; try a smaller optim.lr"
            ) from error
        except WorkerLost as error:
            left = what_is_left(prepared.folder.checkpoint)
            raise RunError(f"{error}; {left}, go on with --resume") from error
        except OSError as error:  # a full disk, a folder that vanished
            folder = prepared.folder
            raise RunError(
                f"{error.filename or folder.path}: cannot be written ({error.strerror}); "
                f"{what_is_left(folder.checkpoint)}; when that is mended, go on with --resume"
            ) from error


def train(
    config: PretrainConfig, run: TrainingSetup, fabric: Fabric, world: World, part_of_more: bool
) -> bool:
    """The loop; whether it came to its end."""
    folder, loader, neighbor_crops, encoder = (
        run.folder,
        run.loader,
        run.neighbor_crops,
        run.encoder,
    )
    per_epoch = loader.steps_per_epoch
    total = config.epochs * per_epoch
    warmup = min(round(config.optim.warmup_epochs * per_epoch), total // 2)
    peak = peak_lr(config.optim, config.batch_size)
    encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network: Any = synchronized(encoder, world, fabric.device)
    network = torch.compile(network) if config.compile else network
    model, optimizer = fabric.setup(
        MultiViewModel(network, world), build_optimizer(encoder, config.optim, peak)
    )
    labels = run.source.labels
    classes = None if labels is None else labels.to(fabric.device)
    step = 0 if run.saved is None else int(run.saved["step"])
    monitor = Monitor(folder, config, per_epoch, run.source, step, world)
    if run.saved is not None:
        world.run_on_all_ranks(lambda: restore(run, optimizer, monitor, fabric))
        if not 0 <= step <= total:
            raise InputError(f"{folder.checkpoint}: step {step} of a run of {total} steps")
        if step == total:
            monitor.say(
                f"{config.out}: finished already, {config.epochs} of {config.epochs} epochs"
            )
            if world.is_rank_zero and not folder.encoder.is_file():  # lost since
                described = encoder.description
                encoder.description = dataclasses.replace(described, epoch=config.epochs)
                encoder.save(folder.encoder)

    def save(at_end_of_epoch: bool) -> None:
        state: dict[str, Any] = {"step": step, "data": run.fingerprint}
        state["monitor"] = monitor.state()
        state["neighborhood"] = {} if neighbor_crops is None else neighbor_crops.state()
        state |= capture(encoder, optimizer, fabric)
        must_be_finite(state["encoder"], step)

        def write() -> None:
            if world.is_rank_zero:
                if at_end_of_epoch:
                    encoder.save(folder.encoder)
                save_checkpoint(state, config, folder.checkpoint)

        with stop.not_at_once():
            world.run_on_all_ranks(write)

    model.train()
    with monitor, listening(world) as stop:
        monitor.say(
            f"{len(run.source):,} images, {per_epoch} steps an epoch; {config.model.backbone} at "
            f"{config.image_size}×{config.image_size} pixels on {fabric.device}"
            + (f", {world.size} processes" if world.size > 1 else "")
        )
        if 0 < step < total:
            monitor.say(f"going on after step {step} of {total}")
        if neighbor_crops is not None:
            where = "on disk" if config.crops.bank == "disk" else "in memory"
            monitor.say(f"feature bank: {neighbor_crops.bank.describe()} {where}")
        for epoch in range(step // per_epoch, config.epochs):
            waiting_since = time.perf_counter()
            for batch in loader.epoch(epoch, run.kinds(epoch), start=step % per_epoch):
                monitor.waited(time.perf_counter() - waiting_since)
                monitor.skipped(batch.skipped)
                share = BatchShard(run.sharding, batch.everyone, batch.place, fabric.device)
                rate = lr_at(step, peak, warmup, total)
                step += 1
                if len(share) >= 2:
                    set_lr(optimizer, rate)
                    optimizer.zero_grad(set_to_none=True)
                    taken = gradient_step(fabric, model, run.method, batch.views, share, world)
                    if neighbor_crops is not None:
                        neighbor_crops.bank.store(share.by_process, taken.first.h)
                    monitor.step(step, rate, taken, share, classes)
                    optimizer.step()
                # In the last step of an epoch, its end comes first.
                if step % per_epoch and world.any(bool(stop)):
                    break
                waiting_since = time.perf_counter()
            else:
                finished = epoch + 1
                measures = [partial(knn_accuracy, encoder, config, finished, world)]
                if neighbor_crops is not None:
                    measures.append(partial(neighbor_crops.end_of_epoch, epoch))
                monitor.epoch(step, finished, measures)
                if (
                    neighbor_crops is not None
                    and neighbor_crops.table is not None
                    and world.is_rank_zero
                ):
                    table = neighbor_crops.table
                    write_neighbors(folder.neighbors, run.source, table, config.seed)
                if finished % config.save_every == 0 or finished == config.epochs:
                    encoder.description = dataclasses.replace(encoder.description, epoch=finished)
                    save(at_end_of_epoch=True)
            if step < total and world.any(bool(stop)):
                save(at_end_of_epoch=False)
                command = typed("wcl", "pretrain", "--out", config.out, "--resume")
                go_on = f"; go on with: {command}"
                monitor.say(f"stopped after step {step} of {total}{'' if part_of_more else go_on}")
                return False
        if not part_of_more:
            monitor.say(
                f"the run is in {config.out}; wcl.load opens it, wcl eval measures it, "
                "wcl report shows it"
            )
    return True


def capture(encoder: Encoder, optimizer: Any, fabric: Fabric) -> dict[str, Any]:
    """All that the coming steps depend on, besides the settings."""
    return {
        "encoder": encoder.state_dict(),
        "optimizer": optimizer.state_dict(),
        "precision": fabric.strategy.precision.state_dict(),
        "random": RngState(fabric.device).state(),
    }


def must_be_finite(weights: dict[str, Tensor], step: int) -> None:
    """Raise NotFinite if the step spoiled the weights: such a checkpoint could not be resumed.

    The loss of a step says nothing of what its own update did, and the loss of one whose batch
    norms overflowed may still be a number.
    """
    for name, values in weights.items():
        if not bool(values.isfinite().all()):
            raise NotFinite(step, f"{name} is not finite after it")


def restore(run: TrainingSetup, optimizer: Any, monitor: Monitor, fabric: Fabric) -> None:
    """Go on from the run's checkpoint.

    Raises:
        InputError: it is damaged, or of another architecture.
    """
    saved = run.saved
    assert saved is not None
    try:
        try:
            run.encoder.load_state_dict(saved["encoder"])
            optimizer.load_state_dict(saved["optimizer"])
        except (RuntimeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(
                "the checkpoint is of another architecture than the settings"
            ) from error
        fabric.strategy.precision.load_state_dict(saved["precision"])
        RngState(fabric.device).restore(saved["random"])
        monitor.resume(saved["monitor"], fabric.device)
        if run.neighbor_crops is not None:
            run.neighbor_crops.restore(saved["neighborhood"])
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{run.folder.checkpoint}: a damaged checkpoint of wcl") from error


def knn_accuracy(
    encoder: Encoder, config: PretrainConfig, epoch: int, world: World
) -> dict[str, float]:
    """k-NN accuracy on the test split, in the epochs that it was asked for, by one process."""
    if not config.log.knn_every or epoch % config.log.knn_every or not world.is_rank_zero:
        return {}
    from wcl.evaluation import evaluate

    try:
        found = evaluate(
            encoder, "knn", config.data, num_workers=config.num_workers, classes=config.classes
        )
    except (InputError, RunError) as error:  # the test images are gone, say: no reason to stop
        say(f"k-NN after epoch {epoch}: {error}")
        return {}
    return {"knn_top1": found.top1}


class Stop:
    """False until a signal asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False
        self.held = False

    @contextmanager
    def not_at_once(self) -> Iterator[None]:
        """What is done in here is done to its end, whatever is asked."""
        self.held = True
        try:
            yield
        finally:
            self.held = False

    def __bool__(self) -> bool:
        return self.asked


@contextmanager
def listening(world: World) -> Iterator[Stop]:
    """Signals ask to stop after the step; a second Ctrl-C stops at once."""
    stop = Stop()

    def ask(number: int, frame: object) -> None:
        if stop.asked and number == signal.SIGINT and not stop.held:
            raise KeyboardInterrupt
        stop.asked = True
        if world.is_rank_zero:  # not `print`, which a signal must not interrupt itself in
            with suppress(OSError):  # nobody may be listening any more
                below = b"\n" if os.isatty(2) else b""  # a bar may be there
                os.write(2, below + b"stopping after this step; Ctrl-C again stops at once\n")

    # Only the main thread may install handlers; a run in another one is stopped by its owner.
    numbers = stop_signals() if current_thread() is main_thread() else ()
    old = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
