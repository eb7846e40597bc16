"""What is measured while training and where it goes: metrics.jsonl, TensorBoard, the terminal."""

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from wcl import health
from wcl.checkpoint import RunFolder
from wcl.config import PretrainConfig
from wcl.curves import curve_writers
from wcl.data import Source
from wcl.encoder import Embeddings
from wcl.errors import NotFinite, RunError
from wcl.methods import Losses
from wcl.new_file import onto_disk, written_whole
from wcl.paths import one_line
from wcl.progress import console
from wcl.sharing import Share
from wcl.step import Step
from wcl.world import World

_SECONDS_BETWEEN_WORDS = 10.0
# Share of the projection's dimensions that do not vary, from which on a run is warned of.
_COLLAPSED = 0.5
_SHARES = (
    ("purity", "pure"),
    ("neighbour_same_class", "neighbours pure"),
    ("knn_top1", "k-NN"),
    ("data_wait", "waiting"),
)
_NOTEWORTHY = 0.1  # share of an epoch's time from which on the search is mentioned


class Monitor:
    """Follows a run step by step.

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
        self._image_count = len(source)
        self._health_steps = -(-config.log.health // config.batch) if config.log.health else 0
        self._metrics_file = folder.metrics
        self._unread: list[tuple[int, Tensor, Tensor]] = []
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._recent: list[tuple[Tensor, ...]] = []
        self._skipped: dict[int, str] = {}
        self._overflows = 0
        self._console = console()
        self._said = -math.inf
        self._folder = folder
        self._step = step
        self._open = ExitStack()
        self._began = self._line_began = time.perf_counter()
        self._epoch_seconds = self._wait = self._line_wait = 0.0
        self._images = self._line_images = 0
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=20),  # shorter where there is less room: all fits 80 columns
            TextColumn("{task.fields[numbers]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_interactive,  # or it would leave an empty line in a log
        )
        total = config.epochs * steps_per_epoch
        self._task = self._bar.add_task("", total=total, completed=step, epoch="", numbers="")

    def __enter__(self) -> Self:
        """Begin to write into the run's folder, which is ours alone from here on."""
        self._world.agree(self._begin)
        return self

    def _begin(self) -> None:
        if not self._world.first:
            return
        self._open.enter_context(self._folder.locked())
        _keep_lines_until(self._metrics_file, self._step)
        self._writers = curve_writers(self._folder.path, self._config, self._step)
        for writer in self._writers:
            self._open.callback(writer.close)
        self._open.enter_context(self._bar)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def say(self, words: str) -> None:
        if self._world.first:
            self._console.print(words, markup=False, soft_wrap=True)

    # -- every step ---------------------------------------------------------------------------

    def waited(self, seconds: float) -> None:
        """Time that the step spent waiting for data."""
        self._wait += seconds
        self._line_wait += seconds

    def skipped(self, images: dict[int, str]) -> None:
        """Images that could not be read; each is named once."""
        for index, reason in images.items():
            if index not in self._skipped:
                self._skipped[index] = reason
                self.say(f"skipped an image that cannot be read: {one_line(reason)}")

    def step(
        self,
        step: int,
        rate: float,
        taken: Step,
        share: Share,
        classes: Tensor | None,
    ) -> None:
        """Record a step that has been taken.

        Args:
            step: its number, from 1.
            rate: its learning rate.
            taken: what it found for the images of this process.
            share: these among those of all.
            classes: of all images of the source, where they are known.

        Raises:
            NotFinite: a loss or a gradient since the last time that they were read.
        """
        self._images += len(share)
        self._line_images += len(share)
        losses = taken.losses
        values = {"loss": losses.total, **losses.parts}
        self._names = list(values)
        numbers = torch.stack([v.detach().float() for v in values.values()])
        self._unread.append((step, numbers, taken.gradient.float()))
        in_epoch = (step - 1) % self._steps_per_epoch + 1
        if in_epoch > self._steps_per_epoch - self._health_steps:
            self._recent.append(share.gather_all(*_sample(taken.first, taken.second)))
        line_due = step % self._config.log.every == 0 or in_epoch == self._steps_per_epoch
        alone_on_cpu = losses.total.device.type == "cpu" and self._world.size == 1
        if line_due or alone_on_cpu:
            latest = self._read()
        if line_due:
            known = None if classes is None else classes[share.rows]
            weak = {k: float(v) for k, v in self._weak_labels(losses, known).items()}
            self._add(weak)
            self._write_step(step, in_epoch, rate, latest | weak)

    def _read(self) -> dict[str, float]:
        """Fetch the losses since the last time; the newest of them."""
        steps, losses, lengths = zip(*self._unread, strict=True)
        rows = self._world.add(torch.stack(losses))  # the processes' parts of a loss add up to it
        gradients = torch.stack(lengths).tolist()  # which are the same on all
        for step, numbers, gradient in zip(steps, rows.tolist(), gradients, strict=True):
            values = dict(zip(self._names, numbers, strict=True))
            if not all(math.isfinite(value) for value in values.values()):
                found = ", ".join(f"{name} {value}" for name, value in values.items())
                raise NotFinite(step, f"the loss is not finite ({found})")
            if self._config.precision != "16-mixed":
                if not math.isfinite(gradient):
                    raise NotFinite(step, f"the gradient is not finite (loss {values['loss']:g})")
                values["gradient"] = gradient
            elif not math.isfinite(gradient):  # the optimiser left this step out
                self._overflows += 1
            self._add(values)
        self._unread.clear()
        return values

    def _add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._sums[name] += value
            self._counts[name] += 1

    def _weak_labels(self, losses: Losses, classes: Tensor | None) -> dict[str, Tensor]:
        if not losses.weak_labels:
            return {}
        labels = losses.weak_labels[0]
        found = health.weak_label_sizes(labels)
        if classes is not None:
            found |= health.weak_label_quality(labels, classes, self._class_count)
        return found

    def _write_step(self, step: int, in_epoch: int, rate: float, values: dict[str, float]) -> None:
        now = time.perf_counter()
        seconds = now - self._line_began
        speed = {
            "images_per_second": self._line_images / seconds,
            "data_wait": self._line_wait / seconds,
        }
        epoch = (step - 1) // self._steps_per_epoch + 1
        self._write({"kind": "step", "step": step, "epoch": epoch, "rate": rate} | values | speed)
        self._line_began, self._line_wait, self._line_images = now, 0.0, 0
        self._bar.update(
            self._task,
            completed=step,
            epoch=f"{epoch}/{self._config.epochs}",
            numbers=(
                f"loss {values['loss']:.3f}  {speed['images_per_second']:.0f} images/s  "
                f"waiting {speed['data_wait']:.0%} "
            ),
        )

    # -- every epoch --------------------------------------------------------------------------

    def epoch(
        self, step: int, epoch: int, measures: Sequence[Callable[[], dict[str, float]]]
    ) -> None:
        """Write the line of an epoch that has ended, and start the next one's sums.

        `measures` may add figures; the time that they take is not the epoch's.

        Raises:
            RunError: not one image could be read.
        """
        if self._unread:
            self._read()
        self._share_skipped()
        if not self._sums:
            raise RunError(
                f"{self._config.data}: no batch has two images that can be read; "
                f"{len(self._skipped)} cannot, `wcl data` says why"
            )
        values = {name: self._sums[name] / self._counts[name] for name in self._sums}
        seconds = self._epoch_seconds + time.perf_counter() - self._began
        timing = {
            "seconds": seconds,
            "images_per_second": self._images / seconds,
            "data_wait": self._wait / seconds,
            "skipped": float(len(self._skipped)),
        }
        if self._config.precision == "16-mixed":
            timing["overflows"] = float(self._overflows)
        values |= self._health()
        if values.get("collapsed", 0) > _COLLAPSED:
            self.say(
                f"warning: {values['collapsed']:.0%} of the projection's dimensions hardly vary: "
                "the embeddings have collapsed; try a smaller optim.rate"
            )
        for measure in measures:
            values |= measure()
        if "search_seconds" in values:
            values["search_share"] = values["search_seconds"] / (seconds + values["search_seconds"])
        self._write({"kind": "epoch", "step": step, "epoch": epoch} | values | timing)
        # Short epochs do not flood the terminal; metrics.jsonl has them all.
        now = time.monotonic()
        if now - self._said >= _SECONDS_BETWEEN_WORDS or epoch == self._config.epochs:
            self._said = now
            self.say(f"epoch {epoch}/{self._config.epochs}  {_sentence(values | timing)}")
        self._sums.clear()
        self._counts.clear()
        self._recent.clear()
        self._began = time.perf_counter()
        self._epoch_seconds = self._wait = 0.0
        self._images = 0

    def _health(self) -> dict[str, float]:
        if not self._recent:
            return {}
        columns = [torch.cat(parts) for parts in zip(*self._recent, strict=True)]
        h, z1, z2 = (column[: self._config.log.health] for column in columns)
        found = {
            "rankme": health.rankme(h),
            "alignment": health.alignment(z1, z2),
            "uniformity": health.uniformity(z1),
            "collapsed": health.collapsed_share(z1),
        }
        return {name: float(value) for name, value in found.items()}

    # -- files --------------------------------------------------------------------------------

    def _share_skipped(self) -> None:
        """Have every process know of the images that any of them could not read."""
        for others in self._world.everyones(self._skipped):
            self._skipped |= others
        if self._world.first and self._skipped:
            lines = (one_line(reason) + "\n" for reason in self._skipped.values())
            with written_whole(self._folder.skipped) as unfinished:
                unfinished.write_text("".join(lines))
        share = len(self._skipped) / self._image_count
        if share > self._config.most_unreadable:
            raise RunError(
                f"{self._config.data}: {share:.0%} of its images cannot be read, see "
                f"{self._folder.skipped}; mend them, or allow it with --most_unreadable"
            )

    def _write(self, values: dict[str, Any]) -> None:
        if not self._world.first:
            return
        with self._metrics_file.open("a") as file:
            file.write(json.dumps(values) + "\n")
        for writer in self._writers:
            writer.write(values)

    def state(self) -> dict[str, Any]:
        """What the coming lines depend on; those before are safe on the disk."""
        if self._unread:
            self._read()
        self._share_skipped()
        if self._world.first and self._metrics_file.exists():
            onto_disk(self._metrics_file)
        return {
            "sums": dict(self._sums),
            "counts": dict(self._counts),
            "recent": [list(part) for part in self._recent],
            "skipped": dict(self._skipped),
            "overflows": self._overflows,
            "seconds": self._epoch_seconds + time.perf_counter() - self._began,
            "wait": self._wait,
            "images": self._images,
        }

    def resume(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from what `state` gave."""
        self._sums.update(state["sums"])
        self._counts.update(state["counts"])
        self._recent = [tuple(t.to(device) for t in part) for part in state["recent"]]
        self._skipped.update(state["skipped"])
        self._overflows = state["overflows"]
        self._epoch_seconds, self._wait = state["seconds"], state["wait"]
        self._images = state["images"]


def _sample(first: Embeddings, second: Embeddings) -> tuple[Tensor, ...]:
    """Features, and the projections of both views (of the weak-label head where g is left out)."""
    z1, z2 = (first.z, second.z) if first.z is not None else (first.v, second.v)
    assert z1 is not None and z2 is not None
    return first.h.detach(), z1.detach(), z2.detach()


def _sentence(values: dict[str, Any]) -> str:
    """The numbers of an epoch that a person follows; metrics.jsonl has all of them."""
    words = [f"loss {values['loss']:.3f}"]
    if "rankme" in values:
        words.append(f"rankme {values['rankme']:.1f}")
    if "components" in values:
        words.append(f"components {values['components']:.0f}")
    words += [f"{word} {values[name]:.0%}" for name, word in _SHARES if name in values]
    if values.get("search_share", 0) >= _NOTEWORTHY:
        words.append(f"searching {values['search_share']:.0%}")
    if values.get("search_recall", 1) < 1:
        words.append(f"found {values['search_recall']:.0%}")
    return "  ".join([*words, f"{values['images_per_second']:.0f} images/s"])


def _keep_lines_until(path: Path, step: int) -> None:
    """Drop the lines of steps that will be taken again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError):
            continue  # a line that was cut short when the run was
    with written_whole(path) as unfinished:
        unfinished.write_text("".join(line + "\n" for line in kept))
