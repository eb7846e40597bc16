"""The result of an evaluation, as a table for people and as JSON for programs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from wcl.evaluation.uncertainty import Figure

REFERENCES = ("untrained", "pretrained")
"""Other weights of the same network, measured beside the encoder."""
_MEANINGS = {
    "interval": "95%, over the test images (Wilson; for mAP by the jackknife)",
    "untrained": "the same network with random weights; for finetune, trained from scratch",
    "pretrained": "the encoder that the run started from, untouched",
    "chance": "the most frequent class; for mAP, the mean share of a class",
}


@dataclass(frozen=True)
class Result:
    """The result of one protocol."""

    protocol: str
    score: float
    """What `measure` names."""
    n_train: int
    """Number of training images; 0 for a protocol without training."""
    n_test: int
    details: dict[str, Any] = field(default_factory=dict)
    """Further values of the protocol."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Figures of several settings or classes, one row of a table each."""
    measure: Literal["top1", "map", "silhouette", "neighbor_agreement"] = "top1"
    """Accuracy; mean average precision where images have several labels; silhouette; or a
    figure without labels."""
    figures: list[Figure] = field(default_factory=list, repr=False, compare=False)
    """One for each row if rows are settings, otherwise one; the last belongs to `score`."""
    beside: dict[str, Any] = field(default_factory=dict)
    """Interval of the score, references and chance, set by `evaluate`."""
    seconds: float = 0.0
    """Duration, set by `evaluate`."""

    @property
    def top1(self) -> float:
        """The accuracy, for protocols that measure it."""
        assert self.measure == "top1"
        return self.score

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of `wcl eval PROTOCOL --json`."""
        return {
            "protocol": self.protocol,
            self.measure: self.score,
            **self.beside,
            **({"n_train": self.n_train} if self.n_train else {}),
            "n_test": self.n_test,
            "seconds": self.seconds,
            **self.details,
            **({"rows": self.rows} if self.rows else {}),
        }


def show(result: Result) -> None:
    """Print a result as a table, and lists of figures as further tables."""
    console = Console()
    values = result.as_dict()
    tables = [values.pop(name) for name in ("sweep", "rows", "verdict") if name in values]
    summary = Table(show_header=False)
    for name, text in _texts(values, result.measure).items():
        summary.add_row(name, text)
    console.print(summary)
    for rows in tables:
        texts = [_texts(row, "mean") for row in rows]
        # Where the terminal is narrow, lines are folded: a figure that is cut off is lost.
        table = Table(*(Column(name, overflow="fold") for name in texts[0]))
        for row in texts:
            table.add_row(*row.values())
        console.print(table)
    if "interval" in values:
        brackets = " In brackets: the encoder's lead, and its margin of error at 95%."
        print(explanation(values) + brackets * ("untrained" in values))


def explanation(names: Iterable[str]) -> str:
    """Return what the names of intervals and references mean."""
    known = [f"{name}: {_MEANINGS[name]}." for name in names if name in _MEANINGS]
    return " ".join(known)


def _texts(values: dict[str, Any], score: str) -> dict[str, str]:
    """Return values as texts: intervals as ranges, and references with the lead of the score."""
    texts = {}
    for name, value in values.items():
        if name == "interval":
            texts[name] = "{:.3f}–{:.3f}".format(*value)
        elif name in REFERENCES and f"{name}_margin" in values:
            lead, margin = values[score] - value, values[f"{name}_margin"]
            texts[name] = f"{value:.3f} ({lead:+.3f} ± {margin:.3f})"
        elif name in REFERENCES or name.removesuffix("_margin") not in REFERENCES:
            texts[name] = _text(value)
    return texts


def _text(value: Any) -> str:
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))
