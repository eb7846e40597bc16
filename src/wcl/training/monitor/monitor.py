"""Collect and write training metrics."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.data import Source
from wcl.distributed.sharding import BatchShard
from wcl.distributed.world import World
from wcl.methods import Losses
from wcl.ops import diagnostics
from wcl.ops.agreement import rand_index
from wcl.system.errors import RunError
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import MetricsFile
from wcl.training.monitor.averages import MetricAverages
from wcl.training.monitor.embeddings import LastEmbeddings
from wcl.training.monitor.skipped import SkippedImages
from wcl.training.monitor.stopwatch import Stopwatch
from wcl.training.monitor.terminal import Terminal
from wcl.training.step import Step


class Monitor:
    """Collects the metrics of a run and writes them to its folder and the terminal.

    Losses are read from the device only when a line is written (on a CPU, where reading is free,
    at every step), so that training steps do not wait. `state` holds everything that later lines
    depend on, so a resumed run writes the lines it would have written without the interruption.

    Every process has a monitor and all of them know the same metrics; rank 0 writes.

    Args:
        folder: the run folder.
        config: settings of the run.
        steps_per_epoch: number of steps of an epoch.
        source: the images.
        step: number of steps already done.
        world: the processes.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: PretrainConfig,
        steps_per_epoch: int,
        source: Source,
        step: int,
        world: World,
    ) -> None:
        self._folder = folder
        self._config = config
        self._steps_per_epoch = steps_per_epoch
        self._source = source
        self._step = step
        self._world = world
        self._averages = MetricAverages(config.precision == "16-mixed", world)
        self._embeddings = LastEmbeddings(config, steps_per_epoch)
        self._skipped = SkippedImages(folder.skipped, config, len(source), world)
        self._stopwatch = Stopwatch()
        self._metrics = MetricsFile(folder, config)
        self._terminal = Terminal(config.epochs, steps_per_epoch, step, world.is_rank_zero)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the run folder and allow writing to it within the context."""
        with ExitStack() as stack:

            def enter() -> None:
                if self._world.is_rank_zero:
                    stack.enter_context(self._folder.locked())
                    stack.enter_context(self._metrics.opened(self._step))
                    stack.enter_context(self._terminal.bar)

            self._world.run_on_all_ranks(enter)
            yield

    def log(self, message: str) -> None:
        """Print a message, on rank 0."""
        self._terminal.log(message)

    def set_epochs(self, epochs: int) -> None:
        """Change the number of epochs that the terminal shows."""
        self._terminal.set_epochs(epochs)

    def add_wait(self, seconds: float) -> None:
        """Add time that a step spent waiting for data."""
        self._stopwatch.add_wait(seconds)

    def add_skipped(self, images: dict[int, str]) -> None:
        """Add images that could not be read, with the reasons; report each image once."""
        for reason in self._skipped.add(images):
            self.log(f"skipped an image that cannot be read: {reason}")

    def start(self, measures: Sequence[Callable[[], dict[str, float]]]) -> None:
        """Write what is measured before the first step, if anything is; rank 0 only."""
        values = {name: value for measure in measures for name, value in measure().items()}
        if values:
            self._write({"kind": "start", "step": 0, "epoch": 0} | values)
            self._terminal.log_start(values)
        self._stopwatch.start_epoch()

    def end_step(self, step: int, lr: float, result: Step, shard: BatchShard) -> None:
        """Add the metrics of a step.

        Args:
            step: its number, from 1.
            lr: its learning rate.
            result: its losses and embeddings of the local images.
            shard: where the local images are in the batch.

        Raises:
            NotFinite: a loss or a gradient is not finite, of any step since the last reading.
        """
        self._stopwatch.add_images(len(shard))
        losses = result.losses
        self._averages.add_step(step, losses, result.gradient_norm)
        epoch, step_in_epoch = (n + 1 for n in divmod(step - 1, self._steps_per_epoch))
        self._embeddings.add(step_in_epoch, result, shard)
        self._terminal.advance(step, epoch)
        is_line_due = step % self._config.log.every == 0 or step_in_epoch == self._steps_per_epoch
        is_reading_free = losses.total.device.type == "cpu" and self._world.size == 1
        if is_line_due or is_reading_free:
            values = self._averages.read_pending()
        if is_line_due:
            figures = self._weak_label_metrics(losses, shard) | losses.diagnostics
            scalars = {name: float(value) for name, value in figures.items()}
            scalars |= self._pair_metrics(losses.positives, shard)
            self._averages.add(scalars)
            values |= scalars | self._stopwatch.line()
            self._write({"kind": "step", "step": step, "epoch": epoch, "lr": lr} | values)
            self._terminal.show_metrics(values)

    def _weak_label_metrics(self, losses: Losses, shard: BatchShard) -> dict[str, Tensor]:
        if not losses.weak_labels:
            return {}
        weak_labels, labels = losses.weak_labels[0], self._source.labels
        metrics = diagnostics.weak_label_sizes(weak_labels)
        if len(losses.weak_labels) == 2:
            metrics["agreement"] = rand_index(*losses.weak_labels)
        if labels is not None:
            of_batch = labels[torch.from_numpy(shard.index)].to(weak_labels.device)
            classes = len(self._source.classes)
            metrics |= diagnostics.weak_label_quality(weak_labels, of_batch, classes)
        return metrics

    def _pair_metrics(self, positives: Tensor | None, shard: BatchShard) -> dict[str, float]:
        """Return the metrics of chosen positives that are defined in this step."""
        if positives is None:
            return {}
        labels = self._source.labels
        metrics = diagnostics.pair_statistics(positives, shard.image_index)
        if labels is not None:
            classes = labels.to(positives.device)
            metrics |= diagnostics.pair_quality(positives, shard.image_index, classes)
        values = {name: float(value) for name, value in metrics.items()}
        return {name: value for name, value in values.items() if not math.isnan(value)}

    def end_epoch(
        self, step: int, epoch: int, measures: Sequence[Callable[[], dict[str, float]]]
    ) -> float:
        """Write the metrics of an epoch.

        Args:
            step: its last step, from 1.
            epoch: its number, from 1.
            measures: functions that return further metrics; their time does not count as training.

        Returns:
            The seconds that an epoch like this one takes with all its measures, if its first step
            takes as long as the others.

        Raises:
            RunError: no image could be read.
        """
        self._averages.read_pending()
        self._skipped.synchronize()
        values = self._averages.means()
        if not values:
            raise RunError(
                f"{self._config.data}: no batch has two images that can be read; "
                f"{len(self._skipped)} cannot, `wcl data` lists why"
            )
        timing, delay = self._stopwatch.epoch(), self._stopwatch.delay(self._steps_per_epoch)
        values |= self._embeddings.diagnostics()
        if values.get("collapsed", 0) > diagnostics.COLLAPSED:
            self.log(
                f"warning: {values['collapsed']:.0%} of the embedding's dimensions hardly vary: "
                "the embeddings have collapsed; try a smaller --optim.lr"
            )
        for measure in measures:
            values |= measure()
        if "search_seconds" in values:
            seconds = values["search_seconds"]
            values["search_share"] = seconds / (timing["seconds"] + seconds)
        values |= timing | {"skipped": float(len(self._skipped))} | self._averages.overflows()
        self._write({"kind": "epoch", "step": step, "epoch": epoch} | values)
        self._terminal.log_epoch(epoch, values)
        self._averages.clear()
        self._embeddings.clear()
        seconds = self._stopwatch.seconds() - delay
        self._stopwatch.start_epoch()
        return seconds

    def _write(self, values: dict[str, Any]) -> None:
        if self._world.is_rank_zero:
            self._metrics.write(values)

    def state(self) -> dict[str, Any]:
        """Return what later lines depend on, after making the earlier lines safe on disk."""
        self._averages.read_pending()
        self._skipped.synchronize()
        if self._world.is_rank_zero:
            self._metrics.fsync()
        parts = (self._averages, self._embeddings, self._skipped, self._stopwatch)
        return {name: value for part in parts for name, value in part.state().items()}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from what `state` returned."""
        self._averages.restore(state)
        self._embeddings.restore(state, device)
        self._skipped.restore(state)
        self._stopwatch.restore(state)
