"""Cost of a training step: WCL against SimCLR, and the loader against a constant batch."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from benchmarks.timing import medians
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, ModelConfig, OptimConfig
from wcl.data import ArraySource, Source, open_source
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.distributed.sharding import BatchSharding
from wcl.distributed.world import World
from wcl.methods import RunInfo, find_method
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.paper.synthetic import write_photos
from wcl.training.optimizers import build_optimizer
from wcl.training.step import MultiViewModel, gradient_step

_CPU = torch.device("cpu")
_BATCH = 256  # of CIFAR-sized images
_IMAGES = 2048
_PHOTO_BATCH, _PHOTOS, _PHOTO_SIZE = 16, 96, 224


def measure(rounds: int) -> dict[str, float]:
    """Return three ratios; takes a few minutes on two cores."""
    return {
        "wcl_over_simclr": _wcl_over_simclr(rounds),
        "loader_efficiency_small": _efficiency_small(rounds),
        "loader_efficiency_photos": _efficiency_photos(rounds),
    }


def training_step(
    method_name: str,
    model: ModelConfig,
    image_size: int,
    crops: int = 0,
    micro_batch_size: int = 0,
    optim: OptimConfig | None = None,
    engine: tuple[Fabric, World] | None = None,
) -> Callable[[list[Tensor]], None]:
    """Return a function that takes a training step of `wcl pretrain` on given views.

    Args:
        method_name, model, image_size, micro_batch_size: settings of a run.
        crops: small crops in addition to the two views.
        optim: settings of the optimizer; LARS by default.
        engine: the engine and the processes; a single process by default.
    """
    mean, std = AugmentConfig().mean, AugmentConfig().std
    method_class = find_method(method_name)
    settings = method_class.Settings()
    heads = method_class.heads(settings, crops)
    encoder = Encoder(Description(model, heads, 3, image_size, mean, std))
    method = method_class(encoder, settings, RunInfo(2**16, 256, 1, crops))
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fabric, world = engine or (Fabric(accelerator="cpu", devices=1), World())
    optimizer = build_optimizer(method, optim or OptimConfig(), 0.01)
    network, optimizer = fabric.setup(MultiViewModel(method, world), optimizer)

    def take(views: list[Tensor]) -> None:
        local = np.arange(views[0].shape[1])
        every = np.arange(len(local) * world.size)
        shard = BatchSharding(len(every), world, micro_batch_size).shard(every, local, _CPU)
        optimizer.zero_grad(set_to_none=True)
        gradient_step(fabric, network, method, views, shard, world)
        optimizer.step()
        method.after_step(0.5)

    return take


def _wcl_over_simclr(rounds: int) -> float:
    """Compare steps of ResNet-18 with the CIFAR stem."""
    model = ModelConfig(backbone="resnet18", stem="cifar")
    views = [torch.randn(2, _BATCH, 3, 32, 32, generator=torch.Generator().manual_seed(0))]
    steps = {name: training_step(name, model, 32) for name in ("simclr", "wcl")}
    seconds = medians({name: partial(take, views) for name, take in steps.items()}, rounds)
    return seconds["wcl"] / seconds["simclr"]


def _efficiency_small(rounds: int) -> float:
    """Measure the loader on CIFAR-sized images with the small ResNet."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (_IMAGES, 3, 32, 32), dtype=np.uint8)
    source = ArraySource("random", torch.from_numpy(pixels))
    model = ModelConfig(backbone="resnet_small", stem="stride2", head_hidden_dim=512)
    return _efficiency(source, model, 32, _BATCH, AugmentConfig(blur=0), rounds)


def _efficiency_photos(rounds: int) -> float:
    """Measure the loader on a folder of JPEGs with ResNet-18 and MoCo v2's augmentation."""
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), _PHOTOS)
        source = open_source(folder)
        config = AugmentConfig()
        return _efficiency(source, ModelConfig(), _PHOTO_SIZE, _PHOTO_BATCH, config, rounds)


def _efficiency(
    source: Source,
    model: ModelConfig,
    size: int,
    batch_size: int,
    augment: AugmentConfig,
    rounds: int,
) -> float:
    """Return the time of an epoch on a constant batch over that of an epoch from the loader."""
    loader = Loader(source, batch_size, 0, _CPU)
    maker = ViewMaker(augment, size)
    take = training_step("wcl", model, size)
    views = [ViewSpec(maker, 2)]
    constant = next(iter(loader.epoch(0, views))).views
    epoch = iter(range(rounds + 1))

    def from_loader() -> None:
        for part in loader.epoch(next(epoch), views):
            take(part.views)

    def from_constant() -> None:
        for _ in range(loader.steps_per_epoch):
            take(constant)

    seconds = medians({"loader": from_loader, "constant": from_constant}, rounds)
    return seconds["constant"] / seconds["loader"]
