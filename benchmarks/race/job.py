"""One training of a race."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Side = Literal["ours", "lightly"]
SIDES: tuple[Side, ...] = ("ours", "lightly")


@dataclass(frozen=True)
class Job:
    """A side, a seed, a recipe, a time and a folder."""

    out: Path
    """Folder of the race."""
    side: Side
    seed: int
    recipe: str
    """Recipe of ours; both sides train its network."""
    minutes: float

    @property
    def images(self) -> str:
        """The images, for `--data`."""
        return str(self.out / "images")

    @property
    def folder(self) -> Path:
        return self.out / f"{self.side}-{self.seed}"

    @property
    def result(self) -> Path:
        return self.out / f"{self.side}-{self.seed}.json"
