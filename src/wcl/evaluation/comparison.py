"""The answer to whether training helped, by all measurements of an encoder.

Measurements are given as rows of `wcl eval all`, which may hold "pixels" besides.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

from wcl.evaluation.uncertainty import Z, independent_margin

_TYPICAL_LABELS = 3  # per class: what a user would label by hand
_BASELINES = {"untrained": "untrained", "pixels": "by raw pixels"}
_PROTOCOLS = {"knn": "by k\u2011NN", "linear": "by a linear probe"}  # lines do not break at ‑


class Baseline(NamedTuple):
    """A score to compare with."""

    name: str
    """As it follows the score: "untrained", "untouched" or "by raw pixels"."""
    score: float
    margin: float
    """Margin of error of the difference, at 95%; infinite if it is not known."""


@dataclass(frozen=True)
class Measurement:
    """A score beside its baselines."""

    how: str
    """Such as "with 3 labels per class" or "by k-NN"."""
    score: float
    n_test: int
    baselines: Sequence[Baseline]
    """At least one."""
    is_accuracy: bool = True
    labels_per_class: int = 0
    """0 for all."""

    @property
    def best(self) -> Baseline:
        return max(self.baselines, key=lambda baseline: baseline.score)

    @property
    def lead(self) -> float:
        return self.score - self.best.score

    @property
    def lead_in_margins(self) -> float:
        return self.lead / self.best.margin

    def clause(self, name: str) -> str:
        """Return the measurement as a clause about the encoder of that name."""
        if self.is_accuracy:
            reached = f"classifies {self.score:.1%} of {self.n_test:,} test images correctly"
            others = [f"{one.score:.1%} {one.name}" for one in self.baselines]
        else:
            reached = f"reaches a mean average precision of {self.score:.3f}"
            others = [f"{one.score:.3f} {one.name}" for one in self.baselines]
        points = f"{100 * self.lead:+.1f}"
        if math.isfinite(self.best.margin):
            points += f" ± {100 * self.best.margin:.1f}"
        over = f" against {self.best.name.removeprefix('by ')}" if len(others) > 1 else ""
        instead = " and ".join(others)
        points = points.replace("-", "−")
        return f"{self.how}, {name} {reached} instead of {instead} ({points} points{over})"


class Verdict(NamedTuple):
    """The answer to whether a run worked, and the sentences that explain it."""

    answer: str
    sentence: str


def verdict(rows: Sequence[Mapping[str, Any]], name: str, untouched: str = "") -> Verdict | None:
    """Return whether training helped; None if nothing was measured beside the encoder.

    For a run that started from pretrained weights, the question is whether it is better than these.
    A difference counts if it is beyond its margin of error, widened for the number of measurements
    (Bonferroni): of many, one may well be beyond its own by chance.

    Args:
        rows: the measurements.
        name: of the encoder, within a sentence.
        untouched: how commands name the encoder that the run started from; empty if it did not.
    """
    measurements = list(_measurements(rows))
    if not measurements:
        return None
    wider = NormalDist().inv_cdf(1 - 0.025 / len(measurements)) / Z
    better = [m for m in measurements if m.lead_in_margins > wider]
    worse = [m for m in measurements if m.lead_in_margins < -wider]
    quoted = _most_telling(better or worse or measurements)
    clause = quoted.clause(name)
    if better and worse:
        answer = "Partly"
        clause += f", but {_most_telling(worse).clause('it')}"
    elif better or worse:
        answer = "Yes" if better else "No"
    else:
        answer = "Not clearly"
        clause += ", a difference that may be due to chance"
    sentences = [f"{clause}."]
    if len(measurements) > 1:
        than = "the untouched encoder" if untouched else "without training"
        sentences += [
            f"It is clearly {how} than {than} in {len(clear)} of {len(measurements)} measurements."
            for how, clear in (("better", better), ("worse", worse))
            if clear
        ]
    if untouched:
        sentences.append(_advice(answer).format(f"`{untouched}`"))
    return Verdict(answer, " ".join(sentences))


def _advice(answer: str) -> str:
    """Return whether to use the adapted or the untouched encoder, whose name takes the place."""
    if answer == "Yes":
        return "Adapting the pretrained encoder, {}, helped."
    if answer == "Partly":
        return "Adapting helped in part: whether this encoder or {} is better depends on the use."
    if answer == "Not clearly":
        return "There is no clear difference from the untouched encoder, {}: either will do."
    return "Adapting did not help: the untouched encoder, {}, is the better choice."


def _most_telling(measurements: Sequence[Measurement]) -> Measurement:
    """Return the measurement to quote: with few labels if there is one, else the clearest."""
    few = [m for m in measurements if m.labels_per_class]
    if few:
        return min(few, key=lambda m: abs(m.labels_per_class - _TYPICAL_LABELS))
    return max(measurements, key=lambda m: abs(m.lead_in_margins))


def _measurements(rows: Sequence[Mapping[str, Any]]) -> Iterator[Measurement]:
    """Yield the measurements with a baseline; with the untouched encoder, if any has it."""
    names = {"pretrained": "untouched"} if any("pretrained" in row for row in rows) else _BASELINES
    for row in rows:
        found = {name: text for name, text in names.items() if name in row}
        if found:
            how, labels_per_class = _how(row)
            baselines = [Baseline(text, row[key], _margin(row, key)) for key, text in found.items()]
            is_accuracy = row["measure"] == "top1"
            images = row["n_test"]
            yield Measurement(how, row["encoder"], images, baselines, is_accuracy, labels_per_class)


def _how(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return how a score was measured, in words, and the labels per class if they are few."""
    setting: str = row["setting"]
    number, few, _ = setting.partition(" per class")
    if few:
        return f"with {number} label{'' if number == '1' else 's'} per class", int(number)
    if row["protocol"] == "finetune":
        return f"fine-tuned with {setting}", 0
    return _PROTOCOLS.get(row["protocol"], f"with {setting}"), 0


def _margin(row: Mapping[str, Any], baseline: str) -> float:
    """Return the margin of error of a lead, or an upper bound where only scores are known."""
    if f"{baseline}_margin" in row:
        return float(row[f"{baseline}_margin"])
    if row["measure"] == "top1":
        return independent_margin(row["encoder"], row[baseline], row["n_test"])
    return math.inf
