"""The images that a report shows, and what each run's encoder makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import LossConfig
from wcl.data import Source, in_memory, limited, subset, with_channels
from wcl.evaluation.features import features_and_rows
from wcl.models.encoder import Encoder
from wcl.ops.weak_labels import weak_labels
from wcl.report.runs import text
from wcl.report.sprites import tile_side, tiles
from wcl.system.errors import RunError


@dataclass
class ReportImages:
    """A random choice of the images, those of them that can be read, in small."""

    source: Source
    tiles: list[Tensor | None]
    side: int
    unreadable: int

    def __len__(self) -> int:
        return len(self.source)

    def name(self, row: int) -> str:
        """Where an image lies below the data's folder."""
        return text(self.source.where(row)).removeprefix(f"{text(self.source.name)}/")

    def label(self, row: int) -> str:
        """The name of an image's class; empty without labels."""
        labels = self.source.labels
        return "" if labels is None else text(str(self.source.classes[int(labels[row])]))

    def alt(self, row: int) -> str:
        """An image in words."""
        label = self.label(row)
        return f"{self.name(row)}, {label}" if label else self.name(row)


@dataclass
class EncodedImages:
    """The shown images as one encoder sees them."""

    features: Tensor
    """(n, features)."""
    components: Tensor
    """(n,) the weak labels that they would get as one batch."""


def choose(whole: Source, most: int, seed: int) -> ReportImages:
    """At most so many of the images, without those that cannot be read."""
    some = in_memory(limited(whole, most, seed))
    side = tile_side(some)
    found = tiles(some, range(len(some)), side)
    readable = [row for row, tile in enumerate(found) if tile is not None]
    # All of them are left as they are: evaluations may have kept their features.
    whole_again = len(readable) == len(some)
    source = some if whole_again else subset(some, np.array(readable, dtype=np.int64))
    kept = [found[row] for row in readable]
    return ReportImages(source, kept, side, len(found) - len(kept))


def encode(
    encoder: Encoder, images: ReportImages, loss: LossConfig, num_workers: int
) -> EncodedImages:
    """Raises RunError if an image has vanished meanwhile, or the encoder has diverged."""
    source = with_channels(images.source, encoder.description.channels)
    values, rows = features_and_rows(encoder, source, num_workers)
    if len(rows) < len(images):
        raise RunError("images vanished while the report was made; try again")
    return EncodedImages(values, weak_labels(embedding(encoder, values, loss)))


@torch.no_grad()
def embedding(encoder: Encoder, features: Tensor, loss: LossConfig) -> Tensor:
    """What weak labels are found by: the head φ behind the features, or what there is of heads."""
    head = encoder.phi if encoder.phi is not None else encoder.g
    if head is None or loss.labels_from == "h":
        return F.normalize(features, dim=1)
    found: Tensor = head(features.to(encoder.device)).float().cpu()
    return found


def members(labels: Tensor) -> list[list[int]]:
    """The rows of each component, the largest component first."""
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        groups.setdefault(label, []).append(row)
    return sorted(groups.values(), key=len, reverse=True)


def shares(classes: Sequence[int]) -> list[tuple[int, float]]:
    """Each class among these and its share, the commonest first."""
    counts = np.bincount(np.array(classes))
    order = np.argsort(-counts, kind="stable")
    return [(int(c), float(counts[c] / len(classes))) for c in order if counts[c]]
