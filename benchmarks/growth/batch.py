"""Batch size: the losses and weak labels of a step, and the network, each with its gradient."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.memory import Cost, cpu_seconds, in_new_process, least_cost
from benchmarks.micro_batch import random_views
from benchmarks.scale import embeddings, tiled
from benchmarks.step import training_step
from wcl.config import ModelConfig
from wcl.distributed.sharding import BatchShard
from wcl.methods import Losses
from wcl.methods.wcl import WCL
from wcl.system.progress import log

_SIZES = tuple(2**n for n in range(6, 15))
_MICRO_BATCH = 512
_WHOLE = (0, 2048)  # larger batches would need more than 3 GB for the small network
_MICRO = (1024, 2**62)
_MODEL = ModelConfig(backbone="conv_tiny")
_PIXELS = 32
_NETWORK_ONLY = f"{__name__}:NetworkOnly"


class NetworkOnly(WCL):
    """WCL with the sum of the embeddings in place of its losses and weak labels."""

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        total = torch.stack([out[head].sum() for head in self.encoder.heads]).sum()
        return Losses(total, {}, (out["g"][0], out["g"][1]))


def measure(rounds: int) -> dict[str, dict[int, Cost]]:
    """Return the costs by batch size of the losses, and of the network with and without
    micro-batches.
    """
    costs: dict[str, dict[int, Cost]] = {"losses": {}, "network": {}, "network_micro": {}}
    for images in _SIZES:
        log(f"batches of {images:,} images")
        costs["losses"][images] = in_new_process(least_cost, rounds, _losses, images)
        for name, (low, high), micro in (
            ("network", _WHOLE, 0),
            ("network_micro", _MICRO, _MICRO_BATCH),
        ):
            if low <= images <= high:
                costs[name][images] = in_new_process(least_cost, rounds, _network, images, micro)
    return costs


def _losses(images: int) -> Callable[[], float]:
    return partial(cpu_seconds, tiled, *embeddings(images))


def _network(images: int, micro_batch_size: int) -> Callable[[], float]:
    step = training_step(_NETWORK_ONLY, _MODEL, _PIXELS, micro_batch_size=micro_batch_size)
    return partial(cpu_seconds, step, random_views(images, _PIXELS))
