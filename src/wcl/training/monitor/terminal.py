"""Terminal output of a run: a progress bar, and a line with the main metrics now and then."""

import math
import time

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from wcl.system.progress import console, log

_SECONDS_BETWEEN_LINES = 10.0
_ESTIMATE_PERIOD = 600.0  # seconds; an estimate needs two steps, which may take half a minute each
_SHARES = (
    ("purity", "pure"),
    ("neighbor_same_class", "neighbors pure"),
    ("knn_top1", "k-NN"),
    ("data_wait", "waiting"),
)
_NOTABLE_SEARCH_SHARE = 0.1  # of an epoch's time


class Terminal:
    """The terminal output of one process.

    Args:
        epochs: number of epochs of the run.
        steps_per_epoch: number of steps of each.
        step: number of steps already done.
        enabled: whether to print messages, which only one process does.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, step: int, enabled: bool) -> None:
        self._epochs = epochs
        self._steps_per_epoch = steps_per_epoch
        self._enabled = enabled
        self._last_line = -math.inf
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=20),  # short, so that everything fits 80 columns
            TextColumn("{task.fields[metrics]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console(),
            transient=True,
            speed_estimate_period=_ESTIMATE_PERIOD,
            disable=not console().is_interactive,  # otherwise it leaves an empty line in a log
        )
        total = epochs * steps_per_epoch
        self._task = self.bar.add_task("", total=total, completed=step, epoch="", metrics="")

    def set_epochs(self, epochs: int) -> None:
        """Change the number of epochs of the run."""
        self._epochs = epochs
        self.bar.update(self._task, total=epochs * self._steps_per_epoch)

    def log(self, message: str) -> None:
        if self._enabled:
            log(message)

    def advance(self, step: int, epoch: int) -> None:
        """Move the bar, without reading anything from the device."""
        self.bar.update(self._task, completed=step, epoch=f"{epoch}/{self._epochs}")

    def show_metrics(self, values: dict[str, float]) -> None:
        """Show the metrics of a step beside the bar."""
        self.bar.update(
            self._task,
            metrics=(
                f"loss {values['loss']:.3f}  {values['images_per_second']:.0f} images/s  "
                f"waiting {values['data_wait']:.0%} "
            ),
        )

    def log_start(self, values: dict[str, float]) -> None:
        """Print what was measured before the first step."""
        self.log(f"before training  {'  '.join(_shares(values))}")

    def log_epoch(self, epoch: int, values: dict[str, float]) -> None:
        """Print the metrics of an epoch, unless a line was printed a moment ago."""
        now = time.monotonic()
        if now - self._last_line >= _SECONDS_BETWEEN_LINES or epoch == self._epochs:
            self._last_line = now
            self.log(f"epoch {epoch}/{self._epochs}  {_summary(values)}")


def _summary(values: dict[str, float]) -> str:
    parts = [f"loss {values['loss']:.3f}"]
    if "rankme" in values:
        parts.append(f"rankme {values['rankme']:.1f}")
    if "components" in values:
        parts.append(f"components {values['components']:.0f}")
    parts += _shares(values)
    if values.get("search_share", 0) >= _NOTABLE_SEARCH_SHARE:
        parts.append(f"searching {values['search_share']:.0%}")
    if values.get("search_recall", 1) < 1:
        parts.append(f"recall {values['search_recall']:.0%}")
    return "  ".join([*parts, f"{values['images_per_second']:.0f} images/s"])


def _shares(values: dict[str, float]) -> list[str]:
    return [f"{label} {values[name]:.0%}" for name, label in _SHARES if name in values]
