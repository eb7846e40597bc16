"""The images that could not be read: each is reported once, and too many of them end the run."""

from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig
from wcl.distributed.world import World
from wcl.system.errors import RunError
from wcl.system.files import atomic_write
from wcl.system.paths import one_line


class SkippedImages:
    """The unreadable images of a run that this process knows of.

    Args:
        file: the file to list them in.
        config: settings of the run.
        num_images: number of images of the data set.
        world: the processes.
    """

    def __init__(self, file: Path, config: PretrainConfig, num_images: int, world: World) -> None:
        self._file = file
        self._config = config
        self._num_images = num_images
        self._world = world
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, images: dict[int, str]) -> list[str]:
        """Add images by index, with the reason each was skipped; return the new reasons."""
        new = {index: reason for index, reason in images.items() if index not in self._reasons}
        self._reasons |= new
        return [one_line(reason) for reason in new.values()]

    def synchronize(self) -> None:
        """Collect the skipped images of all processes and list them in the file.

        Raises:
            RunError: there are too many.
        """
        for reasons in self._world.all_gather_object(self._reasons):
            self._reasons |= reasons
        if self._world.is_rank_zero and self._reasons:
            lines = (one_line(reason) + "\n" for reason in self._reasons.values())
            with atomic_write(self._file) as unfinished:
                unfinished.write_text("".join(lines), encoding="utf-8")
        fraction = len(self._reasons) / self._num_images
        if fraction > self._config.max_unreadable_fraction:
            raise RunError(
                f"{self._config.data}: {fraction:.0%} of its images cannot be read, see "
                f"{self._file}; fix them, or allow more with --max_unreadable_fraction"
            )

    def state(self) -> dict[str, Any]:
        return {"skipped": dict(self._reasons)}

    def restore(self, state: dict[str, Any]) -> None:
        self._reasons.update(state["skipped"])
