"""Methods on a small encoder, and embeddings to call their losses with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wcl.config import ModelConfig
from wcl.distributed.sharding import BatchShard, BatchSharding
from wcl.methods import Losses, Method, RunInfo, find_method
from wcl.methods.simclr import SimCLR
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.models.multiview import select_views

CPU = torch.device("cpu")
DIM = 5


class Supported(SimCLR):
    """SimCLR with labels, and with support views and positives that it only reports."""

    needs_labels = True

    @classmethod
    def support_views(cls, settings: Any) -> int:
        return 3

    def targets(self, views: Sequence[Tensor]) -> dict[str, Tensor]:
        return {"pixels": torch.cat(select_views(views, 2, 5))}

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        assert self.info.labels is not None
        assert len(targets["pixels"]) == 3 and len(out["g"]) == 2 + self.info.crops
        index = shard.image_index
        classes = self.info.labels[index]
        same = torch.where(classes[:, None] == classes, index, -1)
        return replace(super().loss(out, targets, shard), positives=same)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def small_encoder(heads: tuple[str, ...]) -> Encoder:
    torch.manual_seed(0)
    model = ModelConfig("resnet_small", "cifar", head_hidden_dim=16, head_out_dim=DIM)
    return Encoder(Description(model, heads, 3, 8, (0.5,) * 3, (0.5,) * 3))


def build(
    name: str,
    crops: int = 0,
    batch_size: int = 9,
    labels: Tensor | None = None,
    **settings: Any,
) -> Method:
    found = find_method(name)
    chosen = found.Settings(**settings)
    encoder = small_encoder(found.heads(chosen, crops))
    return found(encoder, chosen, RunInfo(64, batch_size, 4, crops, labels))


def whole(images: int) -> BatchShard:
    """A batch of one process."""
    every = np.arange(images)
    return BatchSharding(images).shard(every, every, CPU)


def embeddings(method: Method, seed: int = 0, images: int = 9) -> dict[str, Tensor]:
    """Random embeddings of two views and the method's crops."""
    views = 2 + method.info.crops
    names = ["h", *method.encoder.heads]
    return {name: normal(seed + n, views, images, DIM) for n, name in enumerate(names)}


def losses_of(method: Method, out: dict[str, Tensor]) -> Losses:
    return method.loss(out, {}, whole(out["h"].shape[1]))
