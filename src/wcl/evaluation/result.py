"""What an evaluation found, as a table for people and as JSON for programs."""

from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Result:
    """The outcome of one protocol."""

    protocol: str
    top1: float
    """Share of the test images that were classified rightly."""
    n_train: int
    n_test: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    """What else the protocol has to say."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "top1": self.top1,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "seconds": self.seconds,
            **self.details,
        }


def show(result: Result) -> None:
    """Print a result as a table."""
    table = Table(show_header=False)
    for name, value in result.as_dict().items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    Console().print(table)
