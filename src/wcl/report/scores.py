"""The scores of runs: what `wcl eval all` measured, as a table and as a verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wcl.data import absolute
from wcl.report.runs import Run, shortened

_PROTOCOLS = {
    "knn": "k\u2011NN",  # with a hyphen at which lines do not break
    "linear": "Linear probe",
    "finetune": "Fine-tuning",
    "lowshot": "Low-shot SVM",
}


@dataclass
class Row:
    """A row of the table. Scores are between 0 and 1, by the number of the run."""

    protocol: str
    setting: str
    measure: str
    n_train: int
    n_test: int
    runs: dict[int, float] = field(default_factory=dict)
    untrained: dict[int, float] = field(default_factory=dict)
    """Score of each run's network with random weights."""
    pixels: float | None = None
    other_data: str = ""
    """The data of the evaluation if they are not those of the report."""

    @property
    def measurement(self) -> tuple[str | int, ...]:
        """What was measured, and with which images."""
        images = self.n_train, self.n_test, self.other_data
        return self.protocol, self.setting, self.measure, *images

    @property
    def name(self) -> str:
        return _PROTOCOLS.get(self.protocol, self.protocol)

    @property
    def about(self) -> str:
        """The setting, a measure other than accuracy, and data other than the report's."""
        measure = "mean average precision" if self.measure == "map" else ""
        other_data = f"on {self.other_data}" if self.other_data else ""
        return ", ".join(filter(None, (self.setting, measure, other_data)))

    @property
    def best(self) -> float | None:
        """The highest score of all, if several runs can be compared."""
        if len(self.runs) < 2:
            return None
        return max(self.pixels or 0, *self.untrained.values(), *self.runs.values())


@dataclass
class Scores:
    """The table and notes on it."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def one_untrained(self) -> bool:
        """Whether the untrained networks of all runs have the same scores."""
        return all(len({round(v, 6) for v in row.untrained.values()}) < 2 for row in self.rows)

    def has_run(self, number: int) -> bool:
        return any(number in row.runs for row in self.rows)

    def add(self, number: int, values: Mapping[str, Any], other_data: str = "") -> None:
        """Add a measurement of a run to the row of the same measurement, or to a new one.

        Args:
            number: of the run.
            values: a row of `wcl eval all`.
            other_data: the data of the evaluation if they are not those of the report.
        """
        names = ("protocol", "setting", "measure", "n_train", "n_test")
        new = Row(**{name: values[name] for name in names}, other_data=other_data)
        row = next((row for row in self.rows if row.measurement == new.measurement), new)
        if row is new:
            self.rows.append(row)
        row.runs[number], row.untrained[number] = values["encoder"], values["untrained"]


def evaluated(runs: Sequence[Run], other_data: Sequence[str] = ()) -> Scores:
    """Return what `wcl eval all` measured.

    Args:
        runs: the runs.
        other_data: for each run the data of its evaluation if they are not those of the report.
    """
    scores = Scores()
    for number, run in enumerate(runs):
        if run.evaluation is None:
            continue
        for values in run.evaluation["rows"]:
            scores.add(number, values, other_data[number] if other_data else "")
        if run.trained_since_evaluation:
            scores.notes.append(
                f"{run.name} has been trained further since its evaluation; run `wcl eval all` "
                "again."
            )
        left_out = run.evaluation["left_out"]
        scores.notes += [f"{run.name}: no {what}: {why}" for what, why in left_out.items()]
    return scores


def other_data(run: Run, spec: str, classes: int) -> str:
    """Return the data that a run was evaluated on; empty if they are those of the report."""
    if run.evaluation is None:
        return ""
    data, test_data, only = (run.evaluation[name] for name in ("data", "test_data", "classes"))
    if absolute(data) == absolute(spec) and not test_data and only == classes:
        return ""
    parts = [shortened(data)]
    if test_data:
        parts.append(f"tested on {shortened(test_data)}")
    if only != classes:
        parts.append(f"{only} classes" if only else "all classes")
    return ", ".join(parts)


class Verdict(NamedTuple):
    """Whether a run worked, and the sentence that says why."""

    answer: str
    sentence: str


def verdicts(scores: Scores, names: Sequence[str]) -> list[Verdict]:
    """Return a verdict on each run that has scores, by its k-NN or else its first row."""
    return [
        _verdict(scores, number, "the encoder" if len(names) == 1 else f"“{name}”")
        for number, name in enumerate(names)
        if scores.has_run(number)
    ]


def _verdict(scores: Scores, number: int, name: str) -> Verdict:
    rows = [row for row in scores.rows if number in row.runs]
    row = next((row for row in rows if row.protocol == "knn"), rows[0])
    score, baselines = row.runs[number], {"the untrained network": row.untrained[number]}
    if row.pixels is not None:
        baselines = {"raw pixels": row.pixels, **baselines}
    lead = score - max(baselines.values())
    if row.measure == "top1":
        claim = f"{name} classifies {score:.1%} of {row.n_test:,} test images correctly"
        claim += f" ({row.name})"
        margin = _chance(score, score - lead, row.n_test)
    else:
        claim = f"{name} reaches {score:.3f} ({row.name}, {row.setting}, mean average precision)"
        margin = 0.0
    answer = "Yes" if lead > margin else "No" if lead < -margin else "Not clearly"
    points = [_compared(100 * (score - value), name) for name, value in baselines.items()]
    sentences = [f"{claim}, {' and '.join(points)}."]
    if abs(lead) < margin:
        sentences.append("A difference this small may be due to chance.")
    if len(rows) > 1:
        ahead = sum(row.runs[number] > row.untrained[number] for row in rows)
        sentences.append(
            f"It is ahead of the untrained network in {ahead} of {len(rows)} measurements."
        )
    return Verdict(answer, " ".join(sentences))


def _chance(first: float, second: float, images: int) -> float:
    """Return twice the standard error of the difference of two accuracies.

    It is an upper bound: on the same images the errors are correlated, by how much is not known.
    """
    variances = [max(p * (1 - p), 0.25 / images) for p in (first, second)]
    return 2 * math.sqrt(sum(variances) / images)


def _compared(points: float, name: str) -> str:
    if abs(points) < 0.05:
        return f"the same as {name}"
    return f"{abs(points):.1f} points {'more' if points > 0 else 'less'} than {name}"
