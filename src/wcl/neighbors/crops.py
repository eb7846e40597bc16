"""Crops of neighbors: the images that the small crops of each epoch are cut from."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wcl.config import CropsConfig
from wcl.data import Source
from wcl.distributed.world import World
from wcl.neighbors.approximate import evenly_spaced
from wcl.neighbors.bank import FeatureBank, SearchResult
from wcl.ops.diagnostics import neighbor_quality, same_class
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError

# Images whose neighbors are searched in epochs that do not need the neighbors of all.
_SAMPLE = 1024


class NeighborCrops:
    """The neighbors of every image, found with the features of the last epoch.

    All processes must call `end_of_epoch` and `state`; they get the same table and metrics.

    Args:
        config: settings of the crops.
        epochs: number of epochs of the run.
        source: the images.
        feature_dim: dimensions of a feature.
        device: where the search runs.
        folder: where a bank on disk is kept, and where the shards are gathered for a checkpoint.
        world: the processes.
    """

    def __init__(
        self,
        config: CropsConfig,
        epochs: int,
        source: Source,
        feature_dim: int,
        device: torch.device,
        folder: Path,
        world: World | None = None,
    ) -> None:
        if config.count >= len(source):
            raise InputError(
                f"--crops.count: {len(source)} images have at most {len(source) - 1} neighbors "
                f"each, not {config.count}"
            )
        self._world = world or World()
        self.bank = FeatureBank(
            len(source), feature_dim, folder if config.bank == "disk" else None, self._world
        )
        self._folder = folder
        self._config = config
        self.set_epochs(epochs)
        self._source = source
        self._device = device
        self.table: Integers | None = None
        """(images, K) the image that each crop is cut from; None until the first search."""

    def set_epochs(self, epochs: int) -> None:
        """Set the number of epochs of the run, which the first epoch with neighbors depends on."""
        # A warm-up below 1 is a fraction of the run, otherwise a number of epochs.
        warmup = self._config.warmup
        self.first_epoch = math.floor(warmup * (epochs if warmup < 1 else 1) + 0.5)

    def crop_sources(self, epoch: int) -> Integers | None:
        """Return the table for an epoch (from 0); None to cut crops from the images themselves."""
        return self.table if epoch >= self.first_epoch else None

    @property
    def stores_views(self) -> bool:
        """Return whether the bank holds features of the views of every step."""
        return self._config.features == "views"

    def needs_plain_features(self, epoch: int) -> bool:
        """Return whether the bank has to be filled from plain images after an epoch (from 0)."""
        return not self.stores_views and epoch + 1 >= self.first_epoch

    def end_of_epoch(self, epoch: int) -> dict[str, float]:
        """Find the neighbors for the next epoch and return metrics of their quality.

        If the next epoch uses plain crops, only a sample of the images is searched, and none if
        that would need features of its own.
        """
        if not (self.stores_views or self.needs_plain_features(epoch)):
            return {}
        began = time.perf_counter()
        rows = None
        if epoch + 1 < self.first_epoch:
            rows = evenly_spaced(self.bank.seen.nonzero()[:, 0], _SAMPLE)
        found = self.bank.search(self._config.count, rows, self._config.search, self._device)
        metrics = self._quality(found, self.crop_sources(epoch))
        if rows is None:
            self.table = self._as_table(found)
        metrics["search_seconds"] = max(self._world.all_gather_object(time.perf_counter() - began))
        return metrics

    def _quality(self, found: SearchResult, crop_sources: Integers | None) -> dict[str, float]:
        """Return metrics of the neighbors found, and of the crops of the epoch that ended."""
        before = None if self.table is None else torch.from_numpy(self.table)[found.rows]
        quality = neighbor_quality(found.neighbors, found.similarity, before)
        metrics = {name: float(value) for name, value in quality.items()}
        metrics["search_recall"] = found.recall
        classes = self._source.labels
        if classes is not None:
            metrics["neighbor_same_class"] = float(same_class(found.neighbors, found.rows, classes))
            metrics["crop_same_class"] = 1.0  # plain crops are of their own image
            if crop_sources is not None:
                every = torch.arange(len(self._source))
                metrics["crop_same_class"] = float(
                    same_class(torch.from_numpy(crop_sources), every, classes)
                )
        return metrics

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, complete on rank 0 only.

        Raises:
            RunError: there is no room to gather it (see `World.run_on_all_ranks`).
        """
        table = None if self.table is None else torch.from_numpy(self.table)
        return {**self.bank.state(self._folder), "table": table}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.bank.restore(state)
        self.table = None if state["table"] is None else state["table"].numpy()

    def _as_table(self, found: SearchResult) -> Integers:
        """Return the neighbors as a table; an image without one is its own neighbor."""
        images = np.arange(len(self._source), dtype=np.int64)
        table = np.repeat(images[:, None], self._config.count, axis=1)
        table[found.rows.numpy(), : found.neighbors.shape[1]] = found.neighbors.numpy()
        return table
