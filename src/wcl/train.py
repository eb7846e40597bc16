"""Pretraining: from settings to a run, in one loop."""

import dataclasses
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import torch
import yaml
from lightning_fabric import Fabric

from wcl import machine
from wcl.checkpoint import RunFolder, load_checkpoint, must_match, save_checkpoint
from wcl.checks import check
from wcl.config import PretrainConfig
from wcl.contact_sheet import write_neighbours
from wcl.data import Source, absolute, first_classes, in_memory, limited, open_source
from wcl.data.loader import Loader
from wcl.encoder import Description, Encoder, check_size
from wcl.errors import InputError
from wcl.methods import build_method
from wcl.monitor import Monitor
from wcl.multicrop import cut_from, embed_views, halves, view_kinds
from wcl.neighbourhood import Neighbourhood
from wcl.optim import build_optimiser, peak_rate, rate_at, set_rate
from wcl.settings import settings


def pretrain(recipe: str = "", resume: bool = False, **changes: Any) -> Path:
    """Pretrain an encoder and return the run's folder: the same as `wcl pretrain`.

    Args:
        recipe: a recipe's name; none for the defaults.
        resume: continue the run in `out` from its last checkpoint.
        changes: settings by name, those inside a group as a dict or with a double underscore:
            `data="photos", out="runs/a", optim={"rate": 0.1}, model__backbone="resnet50"`.
    """
    config = settings(recipe, changes, resume)
    run(config, resume)
    return RunFolder(config.out).path


def run(config: PretrainConfig, resume: bool = False) -> bool:
    """Train from settings; whether it came to its end, or was stopped and can be resumed."""
    check(config)
    config = dataclasses.replace(config, data=absolute(config.data))
    machine.keep_freed_memory()
    machine.use_threads(config.threads)
    folder = RunFolder(config.out)
    if not resume:
        folder.must_be_free()
    saved = None
    if resume:
        must_match(config, yaml.safe_load(folder.config.read_text()), folder.config)
        saved = load_checkpoint(folder.checkpoint, config)

    fabric = Fabric(
        accelerator=machine.best_device(config.device), devices=1, precision=config.precision
    )
    chosen = first_classes(open_source(config.data), config.classes)
    source = in_memory(limited(chosen, config.limit, config.seed))
    fingerprint = source.fingerprint()
    if saved is not None and saved["data"] != fingerprint:
        raise InputError(f"{config.data}: the images are not those that the run began with")
    crops = config.crops
    loader = Loader(
        source, config.batch, config.seed, fabric.device, config.workers, crops.cache * 2**20
    )
    method = build_method(config.method, config.loss, crops=crops.count > 0)
    torch.manual_seed(config.seed)
    encoder = Encoder(describe(config, source, method.heads))
    check_size(encoder, config.size, "size")
    if crops.count:
        check_size(encoder, crops.size, "crops.size")
    early, late = (view_kinds(config, source.channels, early) for early in (True, False))
    if config.log.knn_every and source.labels is None:
        raise InputError(f"--log.knn_every: {config.data} has no labels; leave it at 0")
    neighbourhood = None
    if crops.count and crops.neighbours:
        neighbourhood = Neighbourhood(
            crops, config.epochs, source, encoder.features, fabric.device, folder.path
        )
    if not resume:
        folder.create(config)  # all that a user can get wrong has been looked at by now

    total = config.epochs * loader.steps_per_epoch
    warmup = min(round(config.optim.warmup * loader.steps_per_epoch), total // 2)
    peak = peak_rate(config.optim, config.batch)
    encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network: Any = torch.compile(encoder) if config.compile else encoder
    model, optimiser = fabric.setup(network, build_optimiser(encoder, config.optim, peak))
    classes = None if source.labels is None else source.labels.to(fabric.device)
    step = 0 if saved is None else int(saved["step"])
    monitor = Monitor(folder, config, loader.steps_per_epoch, len(source.classes), step)
    if saved is not None:
        try:
            restore(saved, encoder, optimiser, fabric)
            monitor.resume(saved["monitor"], fabric.device)
            if neighbourhood is not None:
                neighbourhood.restore(saved["neighbourhood"])
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{folder.checkpoint}: a damaged checkpoint of wcl") from error
        if not 0 <= step <= total:
            raise InputError(f"{folder.checkpoint}: step {step} of a run of {total} steps")
        if step == total:
            monitor.say(
                f"{config.out}: finished already, {config.epochs} of {config.epochs} epochs"
            )

    def save() -> None:
        state = {"step": step, "data": fingerprint, "monitor": monitor.state()}
        state["neighbourhood"] = {} if neighbourhood is None else neighbourhood.state()
        state |= capture(encoder, optimiser, fabric)
        save_checkpoint(state, config, folder.checkpoint)

    model.train()
    with monitor, stop_signals() as stop:
        monitor.say(
            f"{len(source):,} images, {loader.steps_per_epoch} steps an epoch; "
            f"{config.model.backbone} at {config.size}×{config.size} pixels on {fabric.device}"
        )
        if neighbourhood is not None:
            where = "on disk" if crops.bank == "disk" else "in memory"
            monitor.say(f"feature bank: {neighbourhood.bank.describe()} {where}")
        for epoch in range(step // loader.steps_per_epoch, config.epochs):
            kinds = early if epoch < config.early_epochs else late
            if neighbourhood is not None:
                kinds = cut_from(kinds, neighbourhood.origins(epoch))
            waiting_since = time.perf_counter()
            for batch in loader.epoch(epoch, kinds, start=step % loader.steps_per_epoch):
                monitor.waited(time.perf_counter() - waiting_since)
                monitor.skipped(batch.skipped)
                rate = rate_at(step, peak, warmup, total)
                step += 1
                if len(batch.index) >= 2:
                    set_rate(optimiser, rate)
                    full, *small = embed_views(model, batch.views)
                    first, second = halves(full)
                    losses = method(first, second, *small)
                    optimiser.zero_grad(set_to_none=True)
                    fabric.backward(losses.total)
                    optimiser.step()
                    if neighbourhood is not None:
                        neighbourhood.bank.store(batch.index, first.h)
                    known = None if classes is None else classes[batch.rows]
                    monitor.step(step, rate, losses, (first, second), known)
                # In the last step of an epoch, its end comes first.
                if step % loader.steps_per_epoch and stop:
                    break
                waiting_since = time.perf_counter()
            else:
                finished = epoch + 1
                measures = [partial(knn_accuracy, encoder, config, finished)]
                if neighbourhood is not None:
                    measures.append(partial(neighbourhood.end_of_epoch, epoch))
                monitor.epoch(step, finished, measures)
                if neighbourhood is not None and neighbourhood.table is not None:
                    write_neighbours(folder.neighbours, source, neighbourhood.table, config.seed)
                if finished % config.save_every == 0 or finished == config.epochs:
                    encoder.description = dataclasses.replace(encoder.description, epoch=finished)
                    encoder.save(folder.encoder)
                    save()
            if stop and step < total:
                save()
                monitor.say(
                    f"stopped after step {step} of {total}; go on with: "
                    f"wcl pretrain --out {config.out} --resume"
                )
                return False
    return True


def describe(config: PretrainConfig, source: Source, heads: tuple[str, ...]) -> Description:
    """What the encoder of a run says of itself."""
    return Description(
        model=config.model,
        heads=heads,
        channels=source.channels,
        size=config.size,
        mean=tuple(config.augment.mean[: source.channels]),
        std=tuple(config.augment.std[: source.channels]),
        method=config.method,
        data=config.data,
    )


def capture(encoder: Encoder, optimiser: Any, fabric: Fabric) -> dict[str, Any]:
    """All that the coming steps depend on, besides the settings."""
    state = {
        "encoder": encoder.state_dict(),
        "optimiser": optimiser.state_dict(),
        "precision": fabric.strategy.precision.state_dict(),
        "random": torch.get_rng_state(),
    }
    if fabric.device.type == "cuda":
        state["cuda_random"] = torch.cuda.get_rng_state(fabric.device)
    return state


def restore(saved: dict[str, Any], encoder: Encoder, optimiser: Any, fabric: Fabric) -> None:
    try:
        encoder.load_state_dict(saved["encoder"])
        optimiser.load_state_dict(saved["optimiser"])
    except (RuntimeError, ValueError, KeyError, AttributeError) as error:
        raise InputError("the checkpoint is of another architecture than the settings") from error
    fabric.strategy.precision.load_state_dict(saved["precision"])
    torch.set_rng_state(saved["random"])
    if "cuda_random" in saved and fabric.device.type == "cuda":
        torch.cuda.set_rng_state(saved["cuda_random"], fabric.device)


def knn_accuracy(encoder: Encoder, config: PretrainConfig, epoch: int) -> dict[str, float]:
    """k-NN accuracy on the test split, in the epochs that it was asked for."""
    if not config.log.knn_every or epoch % config.log.knn_every:
        return {}
    from wcl.evaluation import evaluate

    found = evaluate(encoder, "knn", config.data, workers=config.workers, classes=config.classes)
    return {"knn_top1": found.top1}


class Stop:
    """False until a signal asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM ask to stop after the step; a second Ctrl-C stops at once."""
    stop = Stop()

    def ask(number: int, frame: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True
        print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr)

    # Only the main thread may install handlers; a run in another one is stopped by its owner.
    numbers = (signal.SIGINT, signal.SIGTERM) if current_thread() is main_thread() else ()
    old = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
