"""Backbones at several times of a training."""

import time
from pathlib import Path

from wcl.models.encoder import Encoder

_EVERY = 30  # seconds


class Snapshots:
    """Files of backbones, named by the seconds since this object was created."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._began = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self._began

    def take_if_due(self, encoder: Encoder) -> None:
        """Save the backbone if the last snapshot is old enough."""
        if time.perf_counter() - self._last >= _EVERY:
            self.take(encoder)

    def take(self, encoder: Encoder) -> None:
        """Save the backbone."""
        encoder.save_backbone(self._folder / f"{self.seconds:.2f}.safetensors")
        self._last = time.perf_counter()


def snapshots_in(folder: Path) -> list[tuple[float, Path]]:
    """Return the seconds and files of all snapshots in a folder, in order."""
    return sorted((float(path.stem), path) for path in folder.glob("*.safetensors"))
