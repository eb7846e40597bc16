"""Several views of a batch through one network, and batches in micro-batches.

A step's views are a list with one tensor (views, images, C, H, W) per view specification; its
embeddings are a dict of tensors (views, images, …). Views are numbered through all
specifications, images are the second axis everywhere.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from wcl.ops.randomness import Integers


def embed_views(
    network: Callable[[Tensor], dict[str, Tensor]], views: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Embed all views; those of one image size go through the network in one pass.

    Args:
        network: (N, C, H, W) → dict of (N, …).
        views: one (views, images, C, H, W) per specification.

    Returns:
        The network's dict, each entry (all views, images, …).
    """
    by_size: dict[torch.Size, list[int]] = {}
    for number, group in enumerate(views):
        by_size.setdefault(group.shape[2:], []).append(number)
    by_number: dict[int, dict[str, Tensor]] = {}
    for numbers in by_size.values():
        rows = [views[number].flatten(0, 1) for number in numbers]
        together = rows[0] if len(rows) == 1 else torch.cat(rows)
        embeddings = network(together.contiguous(memory_format=torch.channels_last))
        ends = list(accumulate(len(part) for part in rows))
        for number, end, part in zip(numbers, ends, rows, strict=True):
            shape = views[number].shape[:2]
            by_number[number] = {
                name: values[end - len(part) : end].unflatten(0, shape)
                for name, values in embeddings.items()
            }
    parts = [by_number[number] for number in range(len(views))]
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def select_views(views: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
    """Return the views number `start` to `stop` − 1, still grouped by specification.

    >>> two, four = torch.zeros(2, 5, 3, 8, 8), torch.zeros(4, 5, 3, 4, 4)
    >>> [tuple(group.shape[:2]) for group in select_views([two, four], 1, 4)]
    [(1, 5), (2, 5)]
    """
    chosen, first = [], 0
    for group in views:
        part = group[max(start - first, 0) : max(stop - first, 0)]
        if len(part):
            chosen.append(part)
        first += len(group)
    return chosen


def select_images(tensors: Sequence[Tensor], rows: Integers) -> list[Tensor]:
    """Return some images, by their rows, of tensors (views, images, …)."""
    at = torch.from_numpy(rows).to(tensors[0].device, non_blocking=True)
    return [tensor[:, at] for tensor in tensors]


def concat_images(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Concatenate embeddings (views, images, …) of micro-batches along their images."""
    return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
