"""Whose images the small crops of a run are cut from: their own, and then their neighbors'."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wcl.config import CropsConfig
from wcl.data import Source
from wcl.distributed.world import World
from wcl.neighbors import FeatureBank, Found
from wcl.neighbors.approximate import spread
from wcl.ops import diagnostics as health
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError

# Images whose neighbors are looked at in epochs that do not need those of all.
_SAMPLE = 1024


class NeighborCrops:
    """The neighbors of every image, from the features of the last epoch.

    All processes take part in `end_of_epoch` and `state`, and have the same table and figures.

    Args:
        config: of the crops.
        epochs: of the run.
        source: the images.
        dimensions: of a feature.
        device: where the search is computed.
        folder: where a bank on disk lies, and where one of several processes is put together.
        world: the processes.
    """

    def __init__(
        self,
        config: CropsConfig,
        epochs: int,
        source: Source,
        dimensions: int,
        device: torch.device,
        folder: Path,
        world: World | None = None,
    ) -> None:
        if config.count >= len(source):
            raise InputError(
                f"--crops.count: {len(source)} images have at most {len(source) - 1} neighbors "
                f"each, not {config.count}"
            )
        share = config.warmup < 1
        self.first_epoch = math.floor(config.warmup * (epochs if share else 1) + 0.5)
        self._world = world or World()
        self.bank = FeatureBank(
            len(source), dimensions, folder if config.bank == "disk" else None, self._world
        )
        self._folder = folder
        self._config = config
        self._source = source
        self._device = device
        self.table: Integers | None = None
        """(images, K) the image that each crop is cut from; None until the first search."""

    def crop_sources(self, epoch: int) -> Integers | None:
        """What the crops of an epoch (from 0) are cut from; None for the images themselves."""
        return self.table if epoch >= self.first_epoch else None

    def end_of_epoch(self, epoch: int) -> dict[str, float]:
        """Find the neighbors for the next epoch and say how good they are.

        An epoch that is followed by one of plain crops needs none: a sample tells the quality.
        """
        began = time.perf_counter()
        rows = None if epoch + 1 >= self.first_epoch else self._sample()
        found = self.bank.search(self._config.count, rows, self._config.search, self._device)
        values = self._quality(found, self.crop_sources(epoch))
        if rows is None:
            self.table = self._as_table(found)
        values["search_seconds"] = max(self._world.all_gather_object(time.perf_counter() - began))
        return values

    def _quality(self, found: Found, crop_sources: Integers | None) -> dict[str, float]:
        """Figures about what was found, and about what the crops of the epoch were cut from."""
        before = None if self.table is None else torch.from_numpy(self.table)[found.rows]
        figures = health.neighbor_quality(found.neighbors, found.similarity, before)
        values = {name: float(value) for name, value in figures.items()}
        values["search_recall"] = found.recall
        classes = self._source.labels
        if classes is not None:
            near = health.same_class(found.neighbors, found.rows, classes)
            values["neighbor_same_class"] = float(near)
            # Of plain crops all are: the other crops of an image are of its class by definition.
            every = torch.arange(len(self._source))
            values["crop_same_class"] = (
                1.0
                if crop_sources is None
                else float(health.same_class(torch.from_numpy(crop_sources), every, classes))
            )
        return values

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, on process 0; the others get less.

        Raises:
            RunError: there is no place to put it together (raised as by `World.agree`).
        """
        table = None if self.table is None else torch.from_numpy(self.table)
        return {**self.bank.state(self._folder), "table": table}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave.

        Raises:
            InputError: it is of other images.
        """
        table = None
        if state["table"] is not None:
            table = state["table"].numpy()
            images = len(self._source)
            inside = table.min() >= 0 and table.max() < images
            if table.shape != (images, self._config.count) or not inside:
                raise InputError("the checkpoint's neighbors are of other images")
        self.bank.restore(state)
        self.table = table

    def _sample(self) -> Tensor:
        return spread(self.bank.seen.nonzero()[:, 0], _SAMPLE)

    def _as_table(self, found: Found) -> Integers:
        """Every image is its own neighbor where no other was found."""
        images = np.arange(len(self._source), dtype=np.int64)
        table = np.repeat(images[:, None], self._config.count, axis=1)
        table[found.rows.numpy(), : found.neighbors.shape[1]] = found.neighbors.numpy()
        return table
