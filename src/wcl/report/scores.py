"""The scores of runs: what `wcl eval all` measured, as a table and as a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wcl.data import absolute
from wcl.evaluation.comparison import Verdict, verdict
from wcl.report.runs import Run, shortened, shortened_argument

_PROTOCOLS = {
    "knn": "k\u2011NN",  # with a hyphen at which lines do not break
    "linear": "Linear probe",
    "finetune": "Fine-tuning",
    "lowshot": "Low-shot SVM",
    "nearest": "Nearest labeled image",
}


@dataclass
class Row:
    """A row of the table: one measurement of one or several runs. Scores are between 0 and 1."""

    protocol: str
    setting: str
    measure: str
    n_train: int
    n_test: int
    measured: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By the number of the run: a row of `wcl eval all`, which may hold "pixels" besides."""
    other_data: str = ""
    """The data of the evaluation if they are not those of the report."""

    @property
    def runs(self) -> dict[int, float]:
        """Score of each run."""
        return self._all("encoder")

    @property
    def untrained(self) -> dict[int, float]:
        """Score of each run's network with random weights."""
        return self._all("untrained")

    @property
    def pretrained(self) -> dict[int, float]:
        """Score of the untouched encoder that each run started from."""
        return self._all("pretrained")

    @property
    def intervals(self) -> dict[int, Sequence[float]]:
        """Interval of each run's score at 95%."""
        return self._all("interval")

    @property
    def pixels(self) -> float | None:
        return next(iter(self._all("pixels").values()), None)

    @property
    def chance(self) -> float | None:
        return next(iter(self._all("chance").values()), None)

    def _all(self, name: str) -> dict[int, Any]:
        return {number: own[name] for number, own in self.measured.items() if name in own}

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
        others = [*self.untrained.values(), *self.pretrained.values()]
        return max(self.pixels or 0, *others, *self.runs.values())


@dataclass
class Scores:
    """The table and notes on it."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pretrained: dict[int, str] = field(default_factory=dict)
    """How commands name the untouched encoder that a run started from, by the run's number."""

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
        row.measured[number] = dict(values)


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
        if untouched := run.evaluation.get("pretrained_run"):
            scores.pretrained[number] = untouched
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


def verdicts(scores: Scores, names: Sequence[str]) -> list[Verdict]:
    """Return a verdict on each run that has scores, by those on the data of the report if any."""
    found = []
    for number, name in enumerate(names):
        rows = [row for row in scores.rows if number in row.measured]
        rows = [row for row in rows if not row.other_data] or rows
        said = verdict(
            [row.measured[number] for row in rows],
            "the encoder" if len(names) == 1 else f"“{name}”",
            shortened_argument(scores.pretrained.get(number, "")),
        )
        found += [said] if said else []
    return found
