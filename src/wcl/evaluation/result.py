"""The result of an evaluation, as a table for people and as JSON for programs."""

from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table


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
    measure: Literal["top1", "map", "silhouette"] = "top1"
    """Accuracy; mean average precision where images have several labels; or silhouette."""
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
    tables = [values.pop(name) for name in ("sweep", "rows") if name in values]
    summary = Table(show_header=False)
    for name, value in values.items():
        summary.add_row(name, _text(value))
    console.print(summary)
    for rows in tables:
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*map(_text, row.values()))
        console.print(table)


def _text(value: Any) -> str:
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))
