"""Everything a run needs before its first step, and the checks of what the user gave."""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import torch

from wcl import __version__
from wcl.augment import normalization
from wcl.config import PretrainConfig, flat
from wcl.config.run_config import change_config, read_config, write_config
from wcl.data import (
    ArraySource,
    Source,
    describe_left_out,
    first_classes,
    in_memory,
    limited,
    open_source,
    with_format,
)
from wcl.data.loader import Loader
from wcl.data.resize import RESIZER
from wcl.data.views import ViewSpec
from wcl.distributed.sharding import BatchSharding
from wcl.distributed.world import World
from wcl.methods import Method, RunInfo, find_method
from wcl.models.description import Description
from wcl.models.encoder import Encoder, check_image_size
from wcl.models.pretrained import origin
from wcl.neighbors.crops import NeighborCrops
from wcl.system.errors import InputError
from wcl.system.files import clear_unfinished
from wcl.system.machine import device_name
from wcl.system.progress import log
from wcl.system.run_folder import RunFolder
from wcl.training.callback import Callback
from wcl.training.checkpoint import check_same_settings, load_checkpoint
from wcl.training.levels import with_measured_levels, with_recorded_levels
from wcl.training.provenance import add_session, current_session, resizer_before
from wcl.training.schedule import (
    Schedule,
    describe_extension,
    run_schedule,
    schedule_of,
    with_recorded_length,
)
from wcl.training.starting_weights import (
    load_starting_weights,
    with_recorded_sha256,
    with_sha256,
)
from wcl.training.views import view_specs

# Settings that may differ between the processes of a run.
_PER_PROCESS = {"data", "out", "device", "threads", "num_workers", "crops.bank", "crops.cache"}
_PER_PROCESS |= {"model.weights"}  # whose SHA-256 is compared


@dataclass
class TrainingSetup:
    """The parts of a run."""

    config: PretrainConfig
    folder: RunFolder
    source: Source
    fingerprint: str
    """Hash of the images."""
    sharding: BatchSharding
    loader: Loader
    method: Method
    views: list[ViewSpec]
    mild_views: list[ViewSpec]
    """View specifications of the first epochs."""
    neighbor_crops: NeighborCrops | None
    schedule: Schedule
    saved: dict[str, Any] | None
    """The checkpoint that the run continues from."""
    began: float
    """When its preparation began, in seconds of the clock `time.monotonic`."""

    @property
    def encoder(self) -> Encoder:
        return self.method.encoder

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch

    @property
    def total_steps(self) -> int:
        return self.schedule.total

    @property
    def extension(self) -> str:
        """How the run is extended or shortened; empty if it is not."""
        return describe_extension(self.config, self.schedule, self.saved)

    def change_length(self, config: PretrainConfig) -> None:
        """Give the run settings with other epochs, and change what depends on their number."""
        self.config = config
        self.schedule = schedule_of(config, self.steps_per_epoch, self.schedule.restart)
        if self.neighbor_crops is not None:
            self.neighbor_crops.set_epochs(config.epochs)

    def view_specs(self, epoch: int) -> list[ViewSpec]:
        """Return the view specifications of an epoch, from 0, with the sources of its crops."""
        specs = self.mild_views if epoch < self.config.mild_augment_epochs else self.views
        crops = self.neighbor_crops
        sources = None if crops is None else crops.crop_sources(epoch)
        if sources is None:
            return specs
        return [*specs[:-1], dataclasses.replace(specs[-1], crop_sources=sources)]


def prepare(
    config: PretrainConfig,
    resume: bool,
    device: torch.device,
    world: World,
    callbacks: Sequence[Callback] = (),
) -> TrainingSetup:
    """Build the parts of a run.

    Raises:
        InputError: a setting, the images or the checkpoint do not allow the run to start.
    """
    began = time.monotonic()
    folder = RunFolder(config.out)
    saved = None
    if resume:
        recorded = read_config(folder.config)
        config = with_recorded_length(config, recorded)
        config = with_recorded_levels(with_recorded_sha256(config, recorded), recorded)
        check_same_settings(config, recorded, folder.config)
        saved = load_checkpoint(folder.checkpoint, config)
    elif world.is_rank_zero:  # the other processes may look after it was created
        folder.must_be_free()
    source = open_images(config)
    config = config if resume else with_measured_levels(config, source)
    source = in_memory(with_format(source, source.channels, config.levels))
    if config.model.weights:  # which take images with as many channels as they have means
        source = with_format(source, len(config.augment.mean), config.levels)
    fingerprint = source.fingerprint()
    if saved is not None and saved["data"] != fingerprint:
        raise InputError(
            f"{config.data}: the images are not those that the run started with; give the same "
            "--data, or start another run with a new --out"
        )
    sharding = BatchSharding(config.batch_size, world, config.micro_batch_size)
    loader = Loader(
        source,
        config.batch_size,
        config.seed,
        device,
        config.num_workers,
        config.crops.cache * 2**20,
        sharding.positions(world.rank),
        config.timeout_minutes,
    )
    schedule = run_schedule(config, loader.steps_per_epoch, saved)
    method = build_method(config, source, loader.steps_per_epoch, load=saved is None)
    config = with_sha256(config, method.encoder.description.weights_sha256)
    check_image_size(method.encoder, config.image_size, "--image_size")
    if config.crops.count:
        check_image_size(method.encoder, config.crop_size, "--crops.size")
    views, mild_views = (view_specs(config, source.channels, mild) for mild in (False, True))
    for callback in callbacks:
        callback.check(source)
    neighbor_crops = None
    if config.crops.count and config.crops.neighbors:
        dim = method.encoder.feature_dim
        neighbor_crops = NeighborCrops(
            config.crops, config.epochs, source, dim, device, folder.path, world
        )
    return TrainingSetup(
        config,
        folder,
        source,
        fingerprint,
        sharding,
        loader,
        method,
        views,
        mild_views,
        neighbor_crops,
        schedule,
        saved,
        began,
    )


def build_method(
    config: PretrainConfig, source: Source, steps_per_epoch: int, load: bool = True
) -> Method:
    """Build the method of a run with a new encoder.

    Args:
        config: settings of the run.
        source: its images.
        steps_per_epoch: number of steps of an epoch.
        load: whether the encoder starts from `model.weights`, if the run has any. A checkpoint that
            is restored later replaces them.

    Raises:
        InputError: the settings do not fit the method, or the weights do not fit the network.
    """
    method_class, crops = find_method(config.method), config.crops.count
    if crops and not method_class.supports_crops:
        raise InputError(
            f"--crops.count: {config.method} does not learn from small crops; set it to 0"
        )
    if method_class.needs_labels:
        _check_labels(config.method, source)
    info = RunInfo(len(source), config.batch_size, steps_per_epoch, crops, source.labels)
    torch.manual_seed(config.seed)
    encoder = Encoder(describe(config, source, method_class.heads(config.loss, crops)))
    if config.model.weights and load:
        sha256 = load_starting_weights(encoder, config)
        encoder.description = dataclasses.replace(encoder.description, weights_sha256=sha256)
    encoder.frozen_batch_norm = config.model.freeze_batch_norm
    return method_class(encoder, config.loss, info)


def _check_labels(method: str, source: Source) -> None:
    """Raise InputError if a method that learns from labels can learn nothing from these."""
    if source.labels is None:
        raise InputError(
            f"--method: {method} learns from labels, and {source.name} has none; put the images "
            "of each class into a sub-folder, or choose a method without labels"
        )
    if len(source.labels.unique()) < 2:
        raise InputError(
            f"--method: {method} learns to tell classes apart, and the images of {source.name} "
            "are all of one class; use images of at least two"
        )


def open_images(config: PretrainConfig) -> Source:
    """Open the images of a run, in the order of their indices."""
    opened = open_source(config.data)
    if left_out := describe_left_out(opened):
        log(f"{config.data}: {left_out}")
    chosen = first_classes(opened, config.classes)
    return limited(chosen, config.limit, config.seed)


def prepare_folder(setup: TrainingSetup, resume: bool, world: World, stack: ExitStack) -> None:
    """Create the run folder, or clean up that of a resumed run."""
    if world.is_rank_zero and resume:
        clear_unfinished(setup.folder.path)
    elif world.is_rank_zero:
        create_run(setup.folder, setup.config, stack)


def create_run(folder: RunFolder, config: PretrainConfig, stack: ExitStack) -> None:
    """Create the folder of a new run, lock it until `stack` is closed, and write its settings.

    Raises:
        InputError: the folder cannot be created, or another run started there first.
    """
    try:
        folder.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        stack.enter_context(folder.locked())  # if two runs start at once, one is refused
        folder.must_be_free()
        if folder.is_failed_start:
            log(f"{folder.path}: starting anew; the run there ended before it wrote any results")
        write_config(config, folder.config)
    except OSError as error:
        raise InputError(
            f"{folder.path}: cannot be written to ({error.strerror}); choose another --out"
        ) from error


def record_provenance(
    setup: TrainingSetup, recipe: str, resume: bool, device: torch.device, world: World
) -> None:
    """Record in the run folder how the run is trained from here on, unless it is finished."""
    step = 0 if setup.saved is None else setup.saved["step"]
    if world.is_rank_zero and (step < setup.total_steps or setup.extension):
        described = setup.encoder.description
        weights = {"name": described.weights, "sha256": described.weights_sha256}
        resizer = "" if isinstance(setup.source, ArraySource) else RESIZER
        before = resizer_before(setup.folder.provenance) if resume else ""
        if resizer and before and resizer != before:
            log(
                f"{setup.folder.path}: {resizer} resizes photos on this machine, {before} did "
                "before; some bytes differ by 1, so the weights will not be those of a run that "
                "was never stopped"
            )
        started = current_session(
            recipe,
            step,
            device_name(device),
            world.size,
            weights if described.weights else {},
            setup.extension,
            resizer,
        )
        with setup.folder.locked():  # of two processes that resume a run at once, one is refused
            if resume:
                record_length(setup)
            add_session(setup.folder.provenance, started, resume)


def record_length(setup: TrainingSetup) -> None:
    """Write the settings that can change the length of a run to its settings file."""
    config, names = setup.config, ("warmup_epochs", "extension")
    change_config(
        setup.folder.config,
        epochs=config.epochs,
        minutes=config.minutes,
        optim={name: getattr(config.optim, name) for name in names},
    )


def check_same_on_all_ranks(setup: TrainingSetup, world: World) -> None:
    """Raise InputError if the processes of a run were started with different settings."""
    step = -1 if setup.saved is None else setup.saved["step"]
    mine = {"version of wcl": __version__} | flat(asdict(setup.config))
    mine = {name: value for name, value in mine.items() if name not in _PER_PROCESS}
    mine |= {"images of --data": setup.fingerprint[:12], "checkpoint of --out at step": step}
    first, *others = world.all_gather_object(mine)
    for rank, other in enumerate(others, 1):
        for name, value in first.items():
            if other.get(name) != value:
                raise InputError(
                    f"{name}: {value} on process 0, but {other.get(name)} on process {rank}; "
                    "start all processes of a run with the same settings"
                )


def describe(config: PretrainConfig, source: Source, heads: tuple[str, ...]) -> Description:
    """Return the description of a run's encoder."""
    model = config.model
    mean, std = normalization(config.augment, source.channels)
    return Description(
        # The path of the weights is of no use elsewhere, nor is how they were trained.
        model=dataclasses.replace(
            model, weights="", weights_partial=False, weights_sha256="", freeze_batch_norm=False
        ),
        heads=heads,
        channels=source.channels,
        image_size=config.image_size,
        mean=tuple(mean),
        std=tuple(std),
        scale=config.augment.scale,
        flip=config.augment.flip,
        levels=config.levels,
        method=config.method,
        data=config.data,
        weights=origin(model) if model.weights else "",
        weights_sha256=model.weights_sha256,
    )
