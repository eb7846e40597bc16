"""What a decoding process does: from a task, which names images and views, to crops in bytes."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wcl.augment import ViewMaker
from wcl.data.decode import (
    ReducedImage,
    UnreadableImage,
    cut_boxes,
    reduced,
    reduction,
    upright_size,
)
from wcl.data.source import Source
from wcl.data.views import view_draws
from wcl.ops.randomness import Integers


@dataclass(frozen=True)
class Task:
    """Some images of a batch and what to cut for them."""

    epoch: int
    makers: Sequence[ViewMaker]
    """One for each kind of view."""
    index: Integers
    """(n,) numbers of the images."""
    crop_sources: Sequence[Integers]
    """For each kind (n, count): the image that each view is cut from."""


@dataclass(frozen=True)
class Crops:
    """What became of a task."""

    index: Integers
    """Numbers of the images that could be read."""
    crops: list[Tensor]
    """For each kind (count, n, C, size, size) bytes."""
    skipped: dict[int, str]
    """Images that could not be read, and why."""


class PhotoViews(Dataset[Crops]):
    """From a task to its crops; nothing else has a say in them, so nobody's turn matters.

    An image is opened once for all views of its own. Photos of neighbors are kept, reduced, for
    the next image that has the same neighbor, within `cache` bytes.
    """

    def __init__(self, source: Source, seed: int, cache: int) -> None:
        self.source = source
        self.seed = seed
        self.neighbors = NeighborPhotos(source, cache)

    def __getitem__(self, task: Task) -> Crops:
        kept: list[int] = []
        crops: list[list[Tensor]] = []
        skipped: dict[int, str] = {}
        for row, index in enumerate(task.index.tolist()):
            try:
                crops.append(self._views(task, row, index))
                kept.append(index)
            except UnreadableImage as error:
                skipped[index] = f"{self.source.where(index)}: {error}"
        by_kind = [
            torch.stack([views[number] for views in crops], dim=1)
            if crops
            else torch.empty(
                crop_sources.shape[1], 0, maker.channels, maker.size, maker.size, dtype=torch.uint8
            )
            for number, (maker, crop_sources) in enumerate(
                zip(task.makers, task.crop_sources, strict=True)
            )
        ]
        return Crops(np.array(kept, dtype=np.int64), by_kind, skipped)

    def _views(self, task: Task, row: int, index: int) -> list[Tensor]:
        """For each kind (count, C, size, size): all views of one image."""
        image = self.source.image(index)
        own_size = upright_size(image)
        photos: list[list[ReducedImage | None]] = []
        boxes: list[Integers] = []
        counts = [crop_sources.shape[1] for crop_sources in task.crop_sources]
        drawn = view_draws(self.seed, task.epoch, np.array([index], dtype=np.int64), counts)
        for maker, crop_sources, draws in zip(task.makers, task.crop_sources, drawn, strict=True):
            photos.append(
                [
                    None if origin == index else self.neighbors.photo(origin, maker)
                    for origin in crop_sources[row].tolist()
                ]
            )
            sizes = np.array([own_size if p is None else p.full_size for p in photos[-1]])
            boxes.append(maker.boxes(sizes[:, 0], sizes[:, 1], draws))
        factor = min(
            reduction(kind[[photo is None for photo in of_kind]], [maker.size])
            for maker, kind, of_kind in zip(task.makers, boxes, photos, strict=True)
            if None in of_kind
        )
        own = reduced(image, factor, task.makers[0].channels)
        return [
            torch.stack(
                [
                    cut_boxes(photo or own, box[None], [maker.size])[0]
                    for photo, box in zip(of_kind, kind, strict=True)
                ]
            )
            for maker, kind, of_kind in zip(task.makers, boxes, photos, strict=True)
        ]


class NeighborPhotos:
    """Photos decoded for their neighbors' sake, the most recently used kept within some bytes.

    They are reduced as far as any crop allows: by a function of the photo and of the kind of crop
    alone, so that it makes no difference whether a photo was still there or is decoded anew.
    """

    def __init__(self, source: Source, most_bytes: int) -> None:
        self._source = source
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Any, ReducedImage] = OrderedDict()

    def photo(self, index: int, maker: ViewMaker) -> ReducedImage | None:
        """That image as small as the maker's crops allow, or None if it cannot be read."""
        key = index, maker.size, maker.config.scale, maker.config.ratio
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        try:
            image = self._source.image(index)
            factor = maker.least_side(*upright_size(image)) / maker.size
            photo = reduced(image, factor, maker.channels)
        except UnreadableImage:
            return None
        self._kept[key] = photo
        self._bytes += photo.bytes
        while self._bytes > self._most_bytes:
            self._bytes -= self._kept.popitem(last=False)[1].bytes
        return photo
