"""Where does everything lie? Each run's t-SNE map of the same images, for the page's script."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wcl.evaluation.project import tsne
from wcl.report.images import EncodedImages, ReportImages
from wcl.report.sprites import sheets
from wcl.system.errors import RunError

_FEWEST = 4  # images; t-SNE needs some
_GRID = 10_000


def maps(
    images: ReportImages, encoded: Sequence[EncodedImages | None], seed: int
) -> tuple[dict[str, Any], list[str]]:
    """The maps of all runs that have an encoder, and what kept others from having one."""
    notes: list[str] = []
    if len(images) < _FEWEST:
        return {}, [f"{len(images)} readable images are too few for a map."]
    found = []
    for number, one in enumerate(encoded):
        if one is None:
            continue
        try:
            places = _on_grid(tsne(one.features, seed, quick=True))
        except RunError as error:
            notes.append(f"No map: {error}.")
            continue
        found.append({"run": number, **places, "component": _by_size(one.components)})
    if not found:
        return {}, notes
    labels = images.source.labels
    values: dict[str, Any] = {
        "maps": found,
        "names": [images.name(row) for row in range(len(images))],
        "labels": None if labels is None else labels.tolist(),
        "classes": [str(name) for name in images.source.classes],
        **sheets(images.tiles, images.side),
    }
    return values, notes


def _on_grid(places: Tensor) -> dict[str, list[int]]:
    """Whole numbers are short to write, and finer than any screen."""
    low = places.amin(dim=0)
    scaled = (places - low) / (places.amax(dim=0) - low).max().clamp(min=1e-9)
    x, y = (scaled * _GRID).round().to(torch.int).T.tolist()
    return {"x": x, "y": y}


def _by_size(components: Tensor) -> list[int]:
    """Components numbered from the largest on."""
    _, own, counts = components.unique(return_inverse=True, return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    ranks: list[int] = rank[own].tolist()
    return ranks
