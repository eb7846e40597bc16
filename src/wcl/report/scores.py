"""The scores of runs: what `wcl eval all` measured, as a table and as a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
    """A row of the table. Scores are between 0 and 1."""

    protocol: str
    setting: str
    measure: str
    n_train: int
    n_test: int
    runs: list[float | None]
    untrained: list[float | None]
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
    def any_untrained(self) -> float | None:
        """The first score of an untrained network."""
        return next((value for value in self.untrained if value is not None), None)

    @property
    def best(self) -> float | None:
        """The highest score of all, if several runs can be compared."""
        if sum(value is not None for value in self.runs) < 2:
            return None
        every = (self.pixels, *self.untrained, *self.runs)
        return max(value for value in every if value is not None)


@dataclass
class Scores:
    """The table and notes on it."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def one_untrained(self) -> bool:
        """Whether the untrained networks of all runs have the same scores."""
        scores = ({round(v, 6) for v in row.untrained if v is not None} for row in self.rows)
        return all(len(values) < 2 for values in scores)

    def has_run(self, number: int) -> bool:
        return any(row.runs[number] is not None for row in self.rows)

    def row(self, new: Row) -> Row:
        """Return the row of the same measurement, or add this one."""
        for row in self.rows:
            if row.measurement == new.measurement:
                return row
        self.rows.append(new)
        return new


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
            row = scores.row(
                Row(
                    values["protocol"],
                    values.get("setting", ""),
                    values["measure"],
                    values.get("n_train", 0),
                    values.get("n_test", 0),
                    [None] * len(runs),
                    [None] * len(runs),
                    other_data=other_data[number] if other_data else "",
                )
            )
            row.runs[number], row.untrained[number] = values["encoder"], values.get("untrained")
        if run.trained_since_evaluation:
            scores.notes.append(
                f"{run.name} has been trained further since its evaluation; run `wcl eval all` "
                "again."
            )
        left_out = run.evaluation.get("left_out", {})
        scores.notes += [f"{run.name}: no {what}: {why}" for what, why in left_out.items()]
    return scores


def other_data(run: Run, spec: str, classes: int) -> str:
    """Return the data that a run was evaluated on; empty if they are those of the report."""
    if run.evaluation is None:
        return ""
    data = run.evaluation.get("data") or spec
    test_data = run.evaluation.get("test_data", "")
    only = run.evaluation.get("classes", classes)
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
    """Empty if its score has nothing to compare with."""
    sentence: str


def verdicts(scores: Scores, names: Sequence[str]) -> list[Verdict]:
    """Return a verdict on each run that has scores, by its k-NN or else its first row."""
    return [
        _verdict(scores, number, "the encoder" if len(names) == 1 else f"“{name}”")
        for number, name in enumerate(names)
        if scores.has_run(number)
    ]


def _verdict(scores: Scores, number: int, name: str) -> Verdict:
    rows = [row for row in scores.rows if row.runs[number] is not None]
    row = next((row for row in rows if row.protocol == "knn"), rows[0])
    score = row.runs[number]
    assert score is not None
    images = f"{row.n_test:,} test images" if row.n_test else "the test images"
    claim = f"{name} classifies {score:.1%} of {images} correctly ({row.name})"
    if row.measure != "top1":
        claim = f"{name} reaches {score:.3f} ({row.name}, {row.setting}, mean average precision)"
    baselines = {"raw pixels": row.pixels, "the untrained network": row.untrained[number]}
    known = {name: value for name, value in baselines.items() if value is not None}
    if not known:
        return Verdict("", f"{claim[0].upper()}{claim[1:]}.")
    lead = score - max(known.values())
    margin = _chance(score, max(known.values()), row.n_test) if row.measure == "top1" else 0.0
    answer = "Yes" if lead > margin else "No" if lead < -margin else "Not clearly"
    points = [_compared(100 * (score - value), name) for name, value in known.items()]
    sentences = [f"{claim}, {' and '.join(points)}."]
    if abs(lead) < margin:
        sentences.append("A difference this small may be due to chance.")
    pairs = [(row.runs[number], row.untrained[number]) for row in rows]
    compared = [a > b for a, b in pairs if a is not None and b is not None]
    if len(compared) > 1:
        sentences.append(
            f"It is ahead of the untrained network in {sum(compared)} of {len(compared)} "
            "measurements."
        )
    return Verdict(answer, " ".join(sentences))


def _chance(first: float, second: float, images: int) -> float:
    """Return twice the standard error of the difference of two accuracies.

    It is an upper bound: on the same images the errors are correlated, by how much is not known.
    """
    count = max(1, images)
    variances = [max(p * (1 - p), 0.25 / count) for p in (first, second)]
    return 2 * math.sqrt(sum(variances) / count)


def _compared(points: float, name: str) -> str:
    if abs(points) < 0.05:
        return f"the same as {name}"
    return f"{abs(points):.1f} points {'more' if points > 0 else 'less'} than {name}"
