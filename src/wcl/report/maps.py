"""Maps of the images by t-SNE, one for each run, for the script of the page."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wcl.evaluation.project import tsne
from wcl.report.groups import members
from wcl.report.images import EncodedImages, ReportImages
from wcl.report.thumbnails import sheets
from wcl.system.errors import RunError

_MIN_IMAGES = 4  # for t-SNE
_GRID = 10_000


def maps(
    images: ReportImages, encoded: Sequence[EncodedImages | None], seed: int
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the maps of all runs that have an encoder, and why others have none."""
    if len(images) < _MIN_IMAGES:
        return None, [f"{len(images)} readable images are too few for a map."]
    notes: list[str] = []
    found = []
    for number, one in enumerate(encoded):
        if one is None:
            continue
        try:
            places = _on_grid(tsne(one.features, seed, quick=True))
        except RunError as error:
            notes.append(f"No map: {error}.")
            continue
        found.append({"run": number, **places, "group": _numbered(one.weak_labels)})
    if not found:
        return None, notes
    labels = images.source.labels
    values: dict[str, Any] = {
        "maps": found,
        "names": [images.name(row) for row in range(len(images))],
        "labels": None if labels is None else labels.tolist(),
        "classes": [str(name) for name in images.source.classes],
        **sheets(images.thumbnails, images.side),
    }
    return values, notes


def _on_grid(places: Tensor) -> dict[str, list[int]]:
    """Round places to whole numbers, which are short and finer than any screen."""
    low = places.amin(dim=0)
    scaled = (places - low) / (places.amax(dim=0) - low).max().clamp(min=1e-9)
    x, y = (scaled * _GRID).round().to(torch.int).T.tolist()
    return {"x": x, "y": y}


def _numbered(weak_labels: Tensor | None) -> list[int] | None:
    """Return the group of each image; groups are numbered by size, from the largest."""
    if weak_labels is None:
        return None
    numbers = [0] * len(weak_labels)
    for number, rows in enumerate(members(weak_labels)):
        for row in rows:
            numbers[row] = number
    return numbers
