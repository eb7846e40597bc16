"""The views of a step: which there are, and their way through the network."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, PretrainConfig
from wcl.data.views import ViewSpec
from wcl.models.encoder import Embeddings
from wcl.ops.randomness import Integers


def view_specs(config: PretrainConfig, channels: int, early: bool = False) -> list[ViewSpec]:
    """The kinds of views that a step has: two full ones, and small crops if there are any.

    Args:
        config: of the run.
        channels: of the images.
        early: for the epochs of milder augmentation.
    """
    crops, augment = config.crops, config.augment
    if early:
        augment = AugmentConfig(mean=augment.mean, std=augment.std)
    kinds = [ViewSpec(ViewMaker(augment, config.image_size, channels), 2)]
    if crops.count:
        augment = dataclasses.replace(augment, scale=crops.scale)
        kinds.append(ViewSpec(ViewMaker(augment, config.crop_size, channels), crops.count))
    return kinds


def cut_from(kinds: list[ViewSpec], crop_sources: Integers | None) -> list[ViewSpec]:
    """The same with the small crops, which are last, cut from these images."""
    if crop_sources is None:
        return kinds
    return [*kinds[:-1], dataclasses.replace(kinds[-1], crop_sources=crop_sources)]


def embed_views(model: Callable[[Tensor], Embeddings], kinds: list[Tensor]) -> list[Embeddings]:
    """Embeddings of each kind of view; kinds of one size go through the network together."""
    by_size: dict[torch.Size, list[int]] = {}
    for number, views in enumerate(kinds):
        by_size.setdefault(views.shape[1:], []).append(number)
    found: dict[int, Embeddings] = {}
    for numbers in by_size.values():
        together = kinds[numbers[0]]
        if len(numbers) > 1:
            together = torch.cat([kinds[number] for number in numbers])
        embeddings = model(together.contiguous(memory_format=torch.channels_last))
        counts = [len(kinds[number]) for number in numbers]
        parts = zip(
            *([None] * len(counts) if e is None else e.split(counts) for e in embeddings),
            strict=True,
        )
        found |= {number: Embeddings(*part) for number, part in zip(numbers, parts, strict=True)}
    return [found[number] for number in range(len(kinds))]


def of_images(kinds: list[Tensor], images: int, rows: Integers) -> list[Tensor]:
    """Of the views of so many images, or of their embeddings, those of some."""
    if not images:
        return kinds
    at = torch.from_numpy(rows).to(kinds[0].device, non_blocking=True)
    return [views.unflatten(0, (-1, images))[:, at].flatten(0, 1) for views in kinds]


def join_images(pieces: list[list[Embeddings]], counts: list[int]) -> list[Embeddings]:
    """The embeddings of each kind of view of all images, from those of `counts` images each."""

    def together(parts: tuple[Tensor | None, ...]) -> Tensor | None:
        columns = [
            part.unflatten(0, (-1, count))
            for part, count in zip(parts, counts, strict=True)
            if part is not None and count
        ]
        return torch.cat(columns, dim=1).flatten(0, 1) if columns else parts[0]

    joined = []
    for kind in zip(*pieces, strict=True):
        h, z, v = (together(parts) for parts in zip(*kind, strict=True))
        assert h is not None
        joined.append(Embeddings(h, z, v))
    return joined


def halves(both: Embeddings) -> tuple[Embeddings, Embeddings]:
    """The embeddings of the first view and of the second, which went through together."""
    first, second = zip(*((None, None) if e is None else e.chunk(2) for e in both), strict=True)
    return Embeddings(*first), Embeddings(*second)
