"""The one who follows a run, step by step and epoch by epoch."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.data import Source
from wcl.distributed.sharding import BatchShard
from wcl.distributed.world import World
from wcl.methods import Losses
from wcl.ops import diagnostics as health
from wcl.system.errors import RunError
from wcl.system.run_folder import RunFolder
from wcl.training.monitor.embeddings import LastEmbeddings
from wcl.training.monitor.means import Means
from wcl.training.monitor.metrics_file import MetricsFile
from wcl.training.monitor.skipped import SkippedImages
from wcl.training.monitor.stopwatch import Stopwatch
from wcl.training.monitor.terminal import Terminal
from wcl.training.step import Step

# Share of the projection's dimensions that do not vary, from which on a run is warned of.
_COLLAPSED = 0.5


class Monitor:
    """Follows a run: measures it, and writes to its folder and the terminal.

    Losses are read from the device only when a line is written (on a CPU, where reading is free,
    in every step), so the training step never waits. All that later lines depend on is in
    `state`, so that a resumed run writes the lines it would have written.

    In a run of several processes each has one, and they know the same; the first alone writes.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: PretrainConfig,
        steps_per_epoch: int,
        source: Source,
        step: int = 0,
        world: World | None = None,
    ) -> None:
        self._config = config
        self._world = world or World()
        self._steps_per_epoch = steps_per_epoch
        self._class_count = len(source.classes)
        self._folder = folder
        self._step = step
        self._means = Means(config.precision == "16-mixed", self._world)
        self._embeddings = LastEmbeddings(config, steps_per_epoch)
        self._skipped = SkippedImages(folder.skipped, config, len(source), self._world)
        self._stopwatch = Stopwatch()
        self._metrics = MetricsFile(folder, config)
        self._terminal = Terminal(config.epochs, steps_per_epoch, step, self._world.is_rank_zero)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Begin to write into the run's folder, which is ours alone from here on."""
        self._world.run_on_all_ranks(self._begin)
        return self

    def _begin(self) -> None:
        if self._world.is_rank_zero:
            self._open.enter_context(self._folder.locked())
            self._open.enter_context(self._metrics.opened(self._step))
            self._open.enter_context(self._terminal.bar)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def log(self, words: str) -> None:
        self._terminal.log(words)

    # -- every step ---------------------------------------------------------------------------

    def waited(self, seconds: float) -> None:
        """Time that the step spent waiting for data."""
        self._stopwatch.waited(seconds)

    def skipped(self, images: dict[int, str]) -> None:
        """Images that could not be read; each is named once."""
        for words in self._skipped.add(images):
            self.log(f"skipped an image that cannot be read: {words}")

    def step(
        self,
        step: int,
        lr: float,
        taken: Step,
        shard: BatchShard,
        classes: Tensor | None,
    ) -> None:
        """Record a step that has been taken.

        Args:
            step: its number, from 1.
            rate: its learning rate.
            taken: what it found for the images of this process.
            shard: where the local images are in the batch.
            classes: of all images of the source, where they are known.

        Raises:
            NotFinite: a loss or a gradient since the last time that they were read.
        """
        self._stopwatch.passed(len(shard))
        losses = taken.losses
        self._means.add_step(step, losses, taken.gradient_norm)
        in_epoch = (step - 1) % self._steps_per_epoch + 1
        self._embeddings.add(in_epoch, taken, shard)
        self._terminal.moved_on(step, (step - 1) // self._steps_per_epoch + 1)
        line_due = step % self._config.log.every == 0 or in_epoch == self._steps_per_epoch
        alone_on_cpu = losses.total.device.type == "cpu" and self._world.size == 1
        if line_due or alone_on_cpu:
            latest = self._means.read()
        if line_due:
            known = None if classes is None else classes[shard.image_index]
            found = self._weak_labels(losses, known)
            found |= {name: float(value) for name, value in losses.diagnostics.items()}
            self._means.add(found)
            self._write_step(step, lr, latest | found)

    def _weak_labels(self, losses: Losses, classes: Tensor | None) -> dict[str, float]:
        if not losses.weak_labels:
            return {}
        labels = losses.weak_labels[0]
        found = health.weak_label_sizes(labels)
        if classes is not None:
            found |= health.weak_label_quality(labels, classes, self._class_count)
        return {name: float(value) for name, value in found.items()}

    def _write_step(self, step: int, lr: float, values: dict[str, float]) -> None:
        values = values | self._stopwatch.line()
        epoch = (step - 1) // self._steps_per_epoch + 1
        self._write({"kind": "step", "step": step, "epoch": epoch, "lr": lr} | values)
        self._terminal.numbers(values)

    # -- every epoch --------------------------------------------------------------------------

    def epoch(
        self, step: int, epoch: int, measures: Sequence[Callable[[], dict[str, float]]]
    ) -> None:
        """Write the line of an epoch that has ended, and start the next one's sums.

        `measures` may add figures; the time that they take is not the epoch's.

        Raises:
            RunError: not one image could be read.
        """
        self._means.read()
        self._skipped.share()
        values = self._means.of_epoch()
        if not values:
            raise RunError(
                f"{self._config.data}: no batch has two images that can be read; "
                f"{len(self._skipped)} cannot, `wcl data` says why"
            )
        timing = self._stopwatch.epoch()
        values |= self._embeddings.health()
        if values.get("collapsed", 0) > _COLLAPSED:
            self.log(
                f"warning: {values['collapsed']:.0%} of the projection's dimensions hardly vary: "
                "the embeddings have collapsed; try a smaller optim.lr"
            )
        for measure in measures:
            values |= measure()
        if "search_seconds" in values:
            searching = values["search_seconds"]
            values["search_share"] = searching / (timing["seconds"] + searching)
        values |= timing | {"skipped": float(len(self._skipped))} | self._means.overflows()
        self._write({"kind": "epoch", "step": step, "epoch": epoch} | values)
        self._terminal.epoch(epoch, values)
        self._means.clear()
        self._embeddings.clear()
        self._stopwatch.start_epoch()

    # -- what stays ---------------------------------------------------------------------------

    def _write(self, values: dict[str, Any]) -> None:
        if self._world.is_rank_zero:
            self._metrics.write(values)

    def state(self) -> dict[str, Any]:
        """What the coming lines depend on; those before are safe on the disk."""
        self._means.read()
        self._skipped.share()
        if self._world.is_rank_zero:
            self._metrics.fsync()
        parts = (self._means, self._embeddings, self._skipped, self._stopwatch)
        return {name: value for part in parts for name, value in part.state().items()}

    def resume(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from what `state` gave."""
        self._means.resume(state)
        self._embeddings.resume(state, device)
        self._skipped.resume(state)
        self._stopwatch.resume(state)
