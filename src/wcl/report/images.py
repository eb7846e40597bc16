"""The images that a report shows, and what each run's encoder makes of them."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from wcl.data import Source, in_memory, limited, subset, with_format
from wcl.evaluation.features import features_and_rows
from wcl.models.encoder import Encoder
from wcl.report.runs import Run
from wcl.report.thumbnails import thumbnail_side, thumbnails
from wcl.report.weak_labels import weak_labels_of
from wcl.system.errors import RunError


@dataclass
class ReportImages:
    """A random selection of readable images, with their thumbnails."""

    source: Source
    thumbnails: list[Tensor]
    """(C, side, side) uint8 each."""
    side: int
    unreadable: int
    """How many images were left out because they cannot be read."""

    def __len__(self) -> int:
        return len(self.source)

    def name(self, row: int) -> str:
        """Return the path of an image below the data's folder."""
        return self.source.where(row).removeprefix(f"{self.source.name}/")

    def label(self, row: int) -> str:
        """Return the name of an image's class; empty without labels."""
        labels = self.source.labels
        return "" if labels is None else str(self.source.classes[int(labels[row])])

    def alt(self, row: int) -> str:
        """Return a description of an image for people who do not see it."""
        return ", ".join(filter(None, (self.name(row), self.label(row))))


@dataclass
class EncodedImages:
    """The images of a report as one run's encoder represents them."""

    encoder: Encoder
    features: Tensor
    """(N, D)."""
    weak_labels: Tensor | None
    """(N,) the weak labels of all images as one batch; None if the run has none."""


def choose(source: Source, count: int, seed: int) -> ReportImages:
    """Choose at most `count` images at random, without those that cannot be read."""
    chosen = in_memory(limited(source, count, seed))
    side = thumbnail_side(chosen)
    found = thumbnails(chosen, side)
    readable = [row for row, thumbnail in enumerate(found) if thumbnail is not None]
    # Without a reason to select, leave the source as it is: its features may be cached.
    if len(readable) < len(chosen):
        chosen = subset(chosen, np.array(readable, dtype=np.int64))
    kept = [thumbnail for thumbnail in found if thumbnail is not None]
    return ReportImages(chosen, kept, side, len(found) - len(kept))


def encode(run: Run, encoder: Encoder, images: ReportImages, num_workers: int) -> EncodedImages:
    """Encode the images of a report with the encoder of a run.

    Raises:
        RunError: an image has vanished since it was chosen, or the encoder has diverged.
    """
    described = encoder.description
    source = with_format(images.source, described.channels, described.levels)
    features, rows = features_and_rows(encoder, source, num_workers)
    if len(rows) < len(images):
        raise RunError("images vanished while the report was being made; try again")
    return EncodedImages(encoder, features, weak_labels_of(run, encoder, features))
