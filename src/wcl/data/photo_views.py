"""Cut the views of photos: the work of a decoding process."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wcl.augment import ViewMaker
from wcl.data.crops import ReducedImage, cut_boxes, reduced, reduction
from wcl.data.decode import UnreadableImage, upright_size
from wcl.data.source import Source
from wcl.data.views import view_draws
from wcl.ops.randomness import Integers


@dataclass(frozen=True)
class Task:
    """Some images of a batch and the views to cut for them."""

    epoch: int
    makers: Sequence[ViewMaker]
    """One for each view specification."""
    index: Integers
    """(n,) numbers of the images."""
    crop_sources: Sequence[Integers]
    """For each specification (n, count): the image that each view is cut from."""


@dataclass(frozen=True)
class Crops:
    """Result of a task."""

    index: Integers
    """Numbers of the images that could be read."""
    crops: list[Tensor]
    """For each specification (count, n, C, size, size) bytes."""
    skipped: dict[int, str]
    """Images that could not be read, and why."""


class PhotoViews(Dataset[Crops]):
    """Map a task to its crops, which depend on nothing else.

    An image is opened once for all its views. Photos of neighbors are cached at a reduced size, up
    to `cache` bytes, for other images with the same neighbor.
    """

    def __init__(self, source: Source, seed: int, cache: int) -> None:
        self.source = source
        self.seed = seed
        self.neighbors = NeighborPhotos(source, cache)

    def __getitem__(self, task: Task) -> Crops:
        read: list[int] = []
        crops: list[list[Tensor]] = []
        skipped: dict[int, str] = {}
        for row, index in enumerate(task.index.tolist()):
            try:
                crops.append(self._views(task, row, index))
                read.append(index)
            except UnreadableImage as error:
                skipped[index] = f"{self.source.where(index)}: {error}"
        by_spec = [
            torch.stack([views[number] for views in crops], dim=1)
            if crops
            else torch.empty(
                crop_sources.shape[1], 0, maker.channels, maker.size, maker.size, dtype=torch.uint8
            )
            for number, (maker, crop_sources) in enumerate(
                zip(task.makers, task.crop_sources, strict=True)
            )
        ]
        return Crops(np.array(read, dtype=np.int64), by_spec, skipped)

    def _views(self, task: Task, row: int, index: int) -> list[Tensor]:
        """Return all views of one image, for each specification (count, C, size, size)."""
        image = self.source.image(index)
        own_size = upright_size(image)
        photos: list[list[ReducedImage | None]] = []
        boxes: list[Integers] = []
        counts = [crop_sources.shape[1] for crop_sources in task.crop_sources]
        drawn = view_draws(self.seed, task.epoch, np.array([index], dtype=np.int64), counts)
        for maker, crop_sources, draws in zip(task.makers, task.crop_sources, drawn, strict=True):
            photos.append(
                [
                    None if other == index else self.neighbors.photo(other, maker)
                    for other in crop_sources[row].tolist()
                ]
            )
            sizes = np.array([own_size if p is None else p.full_size for p in photos[-1]])
            boxes.append(maker.boxes(sizes[:, 0], sizes[:, 1], draws))
        factor = min(
            reduction(of_spec[[photo is None for photo in cut_from]], [maker.size])
            for maker, of_spec, cut_from in zip(task.makers, boxes, photos, strict=True)
            if None in cut_from
        )
        own = reduced(image, factor, task.makers[0].channels, self.source.levels)
        return [
            torch.stack(
                [
                    cut_boxes(photo or own, box[None], [maker.size])[0]
                    for photo, box in zip(cut_from, of_spec, strict=True)
                ]
            )
            for maker, of_spec, cut_from in zip(task.makers, boxes, photos, strict=True)
        ]


class NeighborPhotos:
    """Cache of the most recently used photos that views of other images are cut from.

    They are reduced as far as every crop of the maker allows. That depends only on the photo and
    on the maker, so it makes no difference whether a photo was cached or is decoded again.
    """

    def __init__(self, source: Source, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._bytes = 0
        self._photos: OrderedDict[Any, ReducedImage] = OrderedDict()

    def photo(self, index: int, maker: ViewMaker) -> ReducedImage | None:
        """Return an image as small as the maker's crops allow, or None if it cannot be read."""
        key = index, maker.size, maker.config.scale, maker.config.ratio
        if key in self._photos:
            self._photos.move_to_end(key)
            return self._photos[key]
        try:
            image = self._source.image(index)
            factor = maker.least_side(*upright_size(image)) / maker.size
            photo = reduced(image, factor, maker.channels, self._source.levels)
        except UnreadableImage:
            return None
        self._photos[key] = photo
        self._bytes += photo.bytes
        while self._bytes > self._max_bytes:
            self._bytes -= self._photos.popitem(last=False)[1].bytes
        return photo
