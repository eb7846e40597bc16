"""Images that could not be read: each is named once, and too many of them end the run."""

from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig
from wcl.distributed.world import World
from wcl.system.errors import RunError
from wcl.system.files import atomic_write
from wcl.system.paths import one_line


class SkippedImages:
    """Those of a run, as far as this process knows of them.

    Args:
        file: where they are listed.
        config: the settings of the run.
        image_count: how many images there are.
        world: the processes, each of which finds some.
    """

    def __init__(self, file: Path, config: PretrainConfig, image_count: int, world: World) -> None:
        self._file = file
        self._config = config
        self._image_count = image_count
        self._world = world
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, images: dict[int, str]) -> list[str]:
        """Note some by their numbers; why they could not be read, of those that are new."""
        new = {index: why for index, why in images.items() if index not in self._reasons}
        self._reasons |= new
        return [one_line(why) for why in new.values()]

    def share(self) -> None:
        """Have every process know of those that any of them found, and list them.

        Raises:
            RunError: they are too many.
        """
        for others in self._world.all_gather_object(self._reasons):
            self._reasons |= others
        if self._world.is_rank_zero and self._reasons:
            lines = (one_line(why) + "\n" for why in self._reasons.values())
            with atomic_write(self._file) as unfinished:
                unfinished.write_text("".join(lines), encoding="utf-8")
        share = len(self._reasons) / self._image_count
        if share > self._config.max_unreadable_fraction:
            raise RunError(
                f"{self._config.data}: {share:.0%} of its images cannot be read, see "
                f"{self._file}; mend them, or allow it with --max_unreadable_fraction"
            )

    def state(self) -> dict[str, Any]:
        return {"skipped": dict(self._reasons)}

    def resume(self, state: dict[str, Any]) -> None:
        self._reasons.update(state["skipped"])
