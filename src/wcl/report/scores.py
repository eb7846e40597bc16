"""Did it work? What `wcl eval all` found of runs, as one table and as a sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wcl.report.runs import Run
from wcl.training.metrics_lines import is_number

_PROTOCOLS = {
    "knn": "k\u2011NN",  # a hyphen at which no line ends
    "linear": "Linear probe",
    "finetune": "Fine-tuning",
    "lowshot": "Low-shot SVM",
}


@dataclass
class Row:
    """A line of the table. Scores are between 0 and 1."""

    protocol: str
    setting: str
    measure: str
    n_train: int
    n_test: int
    runs: list[float | None]
    untrained: list[float | None]
    """Of each run's network."""
    pixels: float | None = None
    elsewhere: str = ""
    """The data that it was measured on, if they are not those of the report."""

    @property
    def what(self) -> tuple[str | int, ...]:
        """What was measured, and with which images."""
        images = self.n_train, self.n_test, self.elsewhere
        return self.protocol, self.setting, self.measure, *images

    @property
    def name(self) -> str:
        return _PROTOCOLS.get(self.protocol, self.protocol)

    @property
    def about(self) -> str:
        """Return the setting, a measure other than accuracy, and data other than the report's."""
        measure = "mean average precision" if self.measure == "map" else ""
        elsewhere = f"on {self.elsewhere}" if self.elsewhere else ""
        return ", ".join(filter(None, (self.setting, measure, elsewhere)))

    @property
    def any_untrained(self) -> float | None:
        """Return the score of the first untrained network that was measured."""
        return next((value for value in self.untrained if value is not None), None)

    @property
    def best(self) -> float | None:
        """Return the highest score of all if several runs can be compared."""
        if sum(value is not None for value in self.runs) < 2:
            return None
        every = (self.pixels, *self.untrained, *self.runs)
        return max(value for value in every if value is not None)


@dataclass
class Scores:
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is missing or to be known, a sentence each."""

    @property
    def has_pixels(self) -> bool:
        return any(row.pixels is not None for row in self.rows)

    @property
    def has_untrained(self) -> bool:
        return any(row.any_untrained is not None for row in self.rows)

    @property
    def has_scratch(self) -> bool:
        """Return whether an untrained network was fine-tuned, that is, trained from scratch."""
        finetuned = (row for row in self.rows if row.protocol == "finetune")
        return any(row.any_untrained is not None for row in finetuned)

    @property
    def one_untrained(self) -> bool:
        """Return whether the untrained networks of all runs have the same scores."""
        return all(
            len({round(v, 6) for v in row.untrained if v is not None}) < 2 for row in self.rows
        )

    def has_run(self, number: int) -> bool:
        return any(row.runs[number] is not None for row in self.rows)

    def row(self, values: dict[str, Any], runs: int) -> Row:
        """The line of the table for this measurement, which several runs may share."""
        wanted = Row(
            str(values["protocol"]),
            str(values.get("setting", "")),
            str(values["measure"]),
            int(_score(values.get("n_train")) or 0),
            int(_score(values.get("n_test")) or 0),
            [None] * runs,
            [None] * runs,
            elsewhere=str(values.get("elsewhere", "")),
        )
        for row in self.rows:
            if row.what == wanted.what:
                return row
        self.rows.append(wanted)
        return wanted


def evaluated(runs: Sequence[Run]) -> Scores:
    """What evaluations of these runs found so far."""
    found = Scores()
    for number, run in enumerate(runs):
        if run.evaluation is None:
            continue
        for values in run.evaluation["rows"]:
            row = found.row(values, len(runs))
            row.runs[number] = _score(values["encoder"])
            row.untrained[number] = _score(values.get("untrained"))
        if run.evaluated_before_its_end:
            found.notes.append(
                f"{run.name} was trained further after it was evaluated; `wcl eval all` measures "
                "it anew."
            )
        left_out = run.evaluation.get("left_out")
        if isinstance(left_out, dict):
            found.notes += [f"{run.name}: no {what}: {why}" for what, why in left_out.items()]
    return found


class Verdict(NamedTuple):
    """Whether a run worked, and a sentence that says why."""

    answer: str
    """Empty if there is nothing to compare its score with."""
    sentence: str


def verdicts(found: Scores, names: Sequence[str]) -> list[Verdict]:
    """Return a verdict on each run that has scores, by its k-NN or else its first row."""
    return [
        verdict
        for number, name in enumerate(names)
        if (verdict := _verdict(found, number, name, alone=len(names) == 1))
    ]


def _verdict(found: Scores, number: int, name: str, alone: bool) -> Verdict | None:
    rows = [row for row in found.rows if row.runs[number] is not None]
    row = next((row for row in rows if row.protocol == "knn"), next(iter(rows), None))
    if row is None:
        return None
    score, untrained = row.runs[number], row.untrained[number]
    assert score is not None
    others = {"raw pixels": row.pixels, "the same network untrained": untrained}
    known = {name: value for name, value in others.items() if value is not None}
    who = "the encoder" if alone else f"“{name}”"
    images = f"{row.n_test:,} test images" if row.n_test > 0 else "the test images"
    what = (
        f"{who} classifies {score:.1%} of {images} rightly ({row.name})"
        if row.measure == "top1"
        else f"{who} reaches {score:.3f} ({row.name}, {row.setting}, mean average precision)"
    )
    if not known:
        return Verdict("", f"{what[0].upper()}{what[1:]}.")
    points = [_compared(100 * (score - value), name) for name, value in known.items()]
    lead = score - max(known.values())
    doubt = 0.0
    if row.measure == "top1":
        # Twice the standard error of a difference of two shares. Of the same images it is smaller,
        # as far as both fail on the same ones, but that is not written down.
        count = max(1, row.n_test)
        variances = [max(p * (1 - p), 0.25 / count) for p in (score, max(known.values()))]
        doubt = 2 * math.sqrt(sum(variances) / count)
    answer = "Yes" if lead > doubt else "No" if lead < -doubt else "Not clearly"
    closing = "" if abs(lead) >= doubt else " So small a difference may be chance."
    sentence = f"{what}, {' and '.join(points)}.{closing}{_in_all(rows, number)}"
    return Verdict(answer, sentence)


def _in_all(rows: Sequence[Row], number: int) -> str:
    """In how many measurements the run is ahead of its untrained network, if there are several."""
    pairs = [(row.runs[number], row.untrained[number]) for row in rows]
    known = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
    if len(known) < 2:
        return ""
    ahead = sum(ours > theirs for ours, theirs in known)
    count = "all" if ahead == len(known) else f"{ahead} of" if ahead else "none of"
    return f" It is ahead of the untrained network in {count} {len(known)} measurements."


def _compared(points: float, name: str) -> str:
    if abs(points) < 0.05:
        return f"as many as {name}"
    return f"{abs(points):.1f} points {'more' if points > 0 else 'fewer'} than {name}"


def _score(value: Any) -> float | None:
    return float(value) if is_number(value) else None
