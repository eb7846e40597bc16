"""What is said of a run while it trains: a bar that moves with its steps, and a line now and then.

Everything is in metrics.jsonl; here are the numbers that a person follows.
"""

import math
import time

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from wcl.system.progress import console

_SECONDS_BETWEEN_WORDS = 10.0
_SECONDS_OF_ESTIMATE = 600.0  # a step may take half a minute, and two are needed to tell
_SHARES = (
    ("purity", "pure"),
    ("neighbor_same_class", "neighbors pure"),
    ("knn_top1", "k-NN"),
    ("data_wait", "waiting"),
)
_NOTEWORTHY = 0.1  # share of an epoch's time from which on the search is mentioned


class Terminal:
    """Where one process speaks for all.

    Args:
        epochs: of the run.
        steps_per_epoch: of the run.
        step: the last one that was taken before.
        speaks: whether it is this process.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, step: int, speaks: bool) -> None:
        self._epochs = epochs
        self._speaks = speaks
        self._said = -math.inf
        self._console = console()
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=20),  # shorter where there is less room: all fits 80 columns
            TextColumn("{task.fields[numbers]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            speed_estimate_period=_SECONDS_OF_ESTIMATE,
            disable=not self._console.is_interactive,  # or it would leave an empty line in a log
        )
        total = epochs * steps_per_epoch
        self._task = self.bar.add_task("", total=total, completed=step, epoch="", numbers="")

    def log(self, words: str) -> None:
        if self._speaks:
            self._console.print(words, markup=False, soft_wrap=True)

    def moved_on(self, step: int, epoch: int) -> None:
        """Move the bar: it asks nothing of the device, so that it can be done at every step."""
        self.bar.update(self._task, completed=step, epoch=f"{epoch}/{self._epochs}")

    def numbers(self, values: dict[str, float]) -> None:
        """Show those of the last line beside the bar."""
        self.bar.update(
            self._task,
            numbers=(
                f"loss {values['loss']:.3f}  {values['images_per_second']:.0f} images/s  "
                f"waiting {values['data_wait']:.0%} "
            ),
        )

    def epoch(self, epoch: int, values: dict[str, float]) -> None:
        """Say how an epoch was, unless the last word was a moment ago: many epochs are short."""
        now = time.monotonic()
        if now - self._said >= _SECONDS_BETWEEN_WORDS or epoch == self._epochs:
            self._said = now
            self.log(f"epoch {epoch}/{self._epochs}  {_sentence(values)}")


def _sentence(values: dict[str, float]) -> str:
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
