"""What a run needs before its first step. Whatever a user can get wrong is found here."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from wcl import __version__
from wcl.config import KnnConfig, PretrainConfig, flat
from wcl.data import Source, first_classes, in_memory, limited, open_source
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.distributed.sharding import BatchSharding
from wcl.distributed.world import World
from wcl.methods import Method, build_method
from wcl.models.encoder import Description, Encoder, check_size
from wcl.models.multiview import cut_from, view_specs
from wcl.neighbors.crops import NeighborCrops
from wcl.system.errors import InputError
from wcl.system.files import clear_unfinished
from wcl.system.machine import device_name
from wcl.system.run_folder import RunFolder
from wcl.training.checkpoint import create_run, load_checkpoint, must_match, read_config
from wcl.training.provenance import add_session, current_session

# Settings that the processes of a run may each have their own of.
_OF_EACH_PROCESS = {"data", "out", "device", "threads", "num_workers", "crops.bank", "crops.cache"}


@dataclass
class TrainingSetup:
    """The parts of a run."""

    folder: RunFolder
    source: Source
    fingerprint: str
    """Of the images."""
    sharding: BatchSharding
    loader: Loader
    method: Method
    encoder: Encoder
    views: list[ViewSpec]
    """The kinds of views of an image."""
    mild_views: list[ViewSpec]
    """The same in the first epochs."""
    mild_augment_epochs: int
    neighbor_crops: NeighborCrops | None
    saved: dict[str, Any] | None
    """The checkpoint that the run goes on from."""

    def kinds(self, epoch: int) -> list[ViewSpec]:
        """The kinds of views of an epoch, from 0, and the images that they are cut from."""
        kinds = self.mild_views if epoch < self.mild_augment_epochs else self.views
        if self.neighbor_crops is None:
            return kinds
        return cut_from(kinds, self.neighbor_crops.crop_sources(epoch))


def prepare(
    config: PretrainConfig, resume: bool, device: torch.device, world: World
) -> TrainingSetup:
    """Make the parts of a run.

    Raises:
        InputError: a setting, the images or the checkpoint are not such that it can begin.
    """
    folder = RunFolder(config.out)
    saved = None
    if resume:
        must_match(config, read_config(folder.config), folder.config)
        saved = load_checkpoint(folder.checkpoint, config)
    elif world.is_rank_zero:  # which will have made it by the time that another looks
        folder.must_be_free()
    source = in_memory(images_of(config))
    fingerprint = source.fingerprint()
    if saved is not None and saved["data"] != fingerprint:
        raise InputError(f"{config.data}: the images are not those that the run began with")
    crops = config.crops
    sharding = BatchSharding(config.batch_size, world, config.micro_batch_size)
    loader = Loader(
        source,
        config.batch_size,
        config.seed,
        device,
        config.num_workers,
        crops.cache * 2**20,
        sharding.positions(world.rank),
        config.timeout_minutes,
    )
    method = build_method(config.method, config.loss, crops=crops.count > 0)
    torch.manual_seed(config.seed)
    encoder = Encoder(describe(config, source, method.heads))
    check_size(encoder, config.image_size, "image_size")
    if crops.count:
        check_size(encoder, config.crop_size, "crops.size")
    views, mild_views = (view_specs(config, source.channels, early) for early in (False, True))
    if config.log.knn_every:
        _must_be_measurable(config, source.channels)
    neighbor_crops = None
    if crops.count and crops.neighbors:
        neighbor_crops = NeighborCrops(
            crops, config.epochs, source, encoder.feature_dim, device, folder.path, world
        )
    return TrainingSetup(
        folder,
        source,
        fingerprint,
        sharding,
        loader,
        method,
        encoder,
        views,
        mild_views,
        config.mild_augment_epochs,
        neighbor_crops,
        saved,
    )


def _must_be_measurable(config: PretrainConfig, channels: int) -> None:
    """Raise InputError if k-NN after an epoch would do so: that epoch would be lost."""
    from wcl.evaluation.splits import labeled_splits

    try:
        labeled_splits(KnnConfig(data=config.data, classes=config.classes), channels)
    except InputError as error:
        raise InputError(f"--log.knn_every: {error}; or leave it at 0") from error


def images_of(config: PretrainConfig) -> Source:
    """The images of a run, in the order of their numbers."""
    chosen = first_classes(open_source(config.data), config.classes)
    return limited(chosen, config.limit, config.seed)


def begin(config: PretrainConfig, run: TrainingSetup, resume: bool, world: World) -> None:
    """Make the run's folder: all that a user can get wrong has been looked at by now."""
    if world.is_rank_zero and resume:
        clear_unfinished(run.folder.path)
    elif world.is_rank_zero:
        create_run(run.folder, config)


def write_down(
    config: PretrainConfig,
    run: TrainingSetup,
    recipe: str,
    resume: bool,
    device: torch.device,
    world: World,
) -> None:
    """Say in the run's folder how it is made from here on, unless it is finished already."""
    step = 0 if run.saved is None else run.saved["step"]
    if world.is_rank_zero and step < config.epochs * run.loader.steps_per_epoch:
        session = current_session(recipe, step, device_name(device), world.size)
        with run.folder.locked():  # of two processes that resume a run at once, one is told
            add_session(run.folder.provenance, session, resume)


def must_be_alike(config: PretrainConfig, prepared: TrainingSetup, world: World) -> None:
    """Raise InputError if the processes of a run were not started for the same one."""
    step = -1 if prepared.saved is None else prepared.saved["step"]
    mine = {"version of wcl": __version__} | flat(asdict(config))
    mine = {name: value for name, value in mine.items() if name not in _OF_EACH_PROCESS}
    mine |= {"images of --data": prepared.fingerprint[:12], "checkpoint of --out at step": step}
    first, *others = world.all_gather_object(mine)
    for rank, other in enumerate(others, 1):
        for name, value in first.items():
            if other.get(name) != value:
                raise InputError(
                    f"{name}: {value} on process 0, but {other.get(name)} on process {rank}; "
                    "start all processes of a run alike"
                )


def describe(config: PretrainConfig, source: Source, heads: tuple[str, ...]) -> Description:
    """What the encoder of a run says of itself."""
    return Description(
        model=config.model,
        heads=heads,
        channels=source.channels,
        image_size=config.image_size,
        mean=tuple(config.augment.mean[: source.channels]),
        std=tuple(config.augment.std[: source.channels]),
        scale=config.augment.scale,
        flip=config.augment.flip,
        method=config.method,
        data=config.data,
    )
