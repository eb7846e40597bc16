"""What an evaluation found, as a table for people and as JSON for programs."""

from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Result:
    """The outcome of one protocol."""

    protocol: str
    score: float
    """Share of the test images that were classified rightly, or what `measure` says."""
    n_train: int
    """0 for a protocol that has nothing to train."""
    n_test: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    """What else the protocol has to say."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Figures of several settings or classes, one line of a table each."""
    measure: Literal["top1", "map", "silhouette"] = "top1"
    """Accuracy; mean average precision where images have several labels; how well classes part."""

    @property
    def top1(self) -> float:
        """The accuracy, for protocols that measure it."""
        assert self.measure == "top1"
        return self.score

    def as_dict(self) -> dict[str, Any]:
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
    """Print a result as a table, and its rows as another."""
    console = Console()
    values = {name: value for name, value in result.as_dict().items() if name != "rows"}
    table = Table(show_header=False)
    tables = [result.rows]
    for name, value in values.items():
        if isinstance(value, list):
            tables.insert(0, value)
        else:
            table.add_row(name, escape(_text(value)))
    console.print(table)
    for rows in filter(None, tables):
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*(escape(_text(value)) for value in row.values()))
        console.print(table)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
