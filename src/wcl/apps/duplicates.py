"""`wcl duplicates`: groups of images that are nearly the same.

The encoder only suggests pairs, since cosines mean something else for every encoder. Among 648
photos and 300 copies, links at a cosine of 0.97 put 946 images into one group with an untrained
network, and find 27% of the copies with EfficientNet-Lite0 trained on ImageNet. Pixels find 299 of
the copies with either, and no other pair.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.apps import retrieval
from wcl.apps.contact_sheet import Row, contact_sheet, write_sheet
from wcl.config import DuplicatesConfig
from wcl.data import Source
from wcl.data.decode import squeezed
from wcl.data.plain_images import decoded_batches
from wcl.models.encoder import Encoder
from wcl.neighbors import nearest
from wcl.neighbors.groups import linked_groups
from wcl.ops.image_correlation import aligned_correlations, edges
from wcl.system.errors import InputError
from wcl.system.machine import use_threads
from wcl.system.paths import one_line

_REDUCED = 32  # side of a reduced image, in pixels
_CANDIDATES = 10  # images that each is compared with, by features, by pixels and mirrored
# Copies are above and different photos below this range, with few exceptions.
_LOWEST_THRESHOLD, _HIGHEST_THRESHOLD = 0.88, 0.94
_MEMBERS_SHOWN = 8
_GROUPS_PRINTED = 10


@dataclass(frozen=True)
class Duplicates:
    """A group of images that are linked by their similarity."""

    similarity: float
    """The smallest of `similarities`."""
    paths: list[str]
    similarities: list[float]
    """Similarity of each image and the most similar other one."""
    indices: list[int]
    """The images' indices in the data."""


def duplicates(
    run: str | Path | Encoder,
    data: str | Path | Source,
    threshold: float = 0.0,
    device: str = "auto",
    num_workers: int = -1,
) -> list[Duplicates]:
    """Return groups of images that are nearly the same, the largest first.

    Each image is compared with those nearest to it by features and by reduced pixels. Two images
    are linked if the correlation of their edges is at least the threshold; groups are the connected
    components of these links.

    Args:
        run: a run's folder, an encoder's file, or an encoder.
        data: images, as for pretraining, or an open source.
        threshold: a correlation, at most 1; 0 chooses one by `threshold_in_gap`.
        device: auto, cpu, cuda or mps.
        num_workers: processes that decode photos; -1 chooses by the available cores.

    Raises:
        InputError: no encoder, no such data, or a setting that is out of range.
    """
    return find(run, data, threshold, device, num_workers)[0]


def find(
    run: str | Path | Encoder,
    data: str | Path | Source,
    threshold: float,
    device: str,
    num_workers: int,
) -> tuple[list[Duplicates], float]:
    """Return the groups and the threshold, as `duplicates` does."""
    if not 0 <= threshold <= 1:
        raise InputError(f"--threshold: must be between 0 and 1, not {threshold}")
    encoder = retrieval.open_encoder(run, device, num_workers)
    source = retrieval.open_images(data)
    features, indices = retrieval.image_features(encoder, source, num_workers)
    described = encoder.description
    channels = 3 if described.channels == 1 else described.channels  # colors tell images apart
    reduce = partial(squeezed, size=_REDUCED, channels=channels, levels=described.levels)
    batches = decoded_batches(source, reduce, num_workers)
    pixels, readable = map(torch.cat, zip(*batches, strict=True))
    # Files may have become unreadable since the features were cached, or readable.
    both = torch.isin(indices, readable)
    features, indices = features[both], indices[both]
    pixels = pixels[torch.isin(readable, indices)]
    pairs = candidates(features, pixels, encoder.device)
    similarity = aligned_correlations(pixels, pairs)
    threshold = threshold or threshold_in_gap(similarity)
    linked = similarity >= threshold
    highest = torch.zeros(len(pixels))
    for end in pairs[linked].T:
        highest.scatter_reduce_(0, end, similarity[linked], "amax")
    groups = []
    for rows in linked_groups(pairs[linked], len(pixels)):
        similarities, images = highest[rows].tolist(), indices[rows].tolist()
        paths = [source.where(index) for index in images]
        groups.append(Duplicates(min(similarities), paths, similarities, images))
    return sorted(groups, key=lambda group: (-len(group.paths), -group.similarity)), threshold


def candidates(features: Tensor, pixels: Tensor, device: torch.device) -> Tensor:
    """Return the pairs of images to compare: (P, 2), the lower index first.

    Args:
        features: (N, D).
        pixels: (N, C, size, size) reduced images.
        device: where to compute.
    """
    rows = torch.arange(len(features))
    k = min(_CANDIDATES, len(features) - 1)
    if k == 0:
        return torch.empty(0, 2, dtype=torch.long)
    small = F.avg_pool2d(pixels.float(), 4)
    upright, mirrored = edges(small), edges(small.flip(-1))
    searches = ((features, features), (upright, upright), (mirrored, upright))
    found = [nearest(queries, keys, k, rows, device)[1] for queries, keys in searches]
    pairs = torch.stack([rows.repeat(3)[:, None].expand(-1, k), torch.cat(found)], dim=-1)
    ordered: Tensor = pairs.flatten(0, 1).sort(dim=1).values
    unique: Tensor = ordered.unique(dim=0)
    return unique


def threshold_in_gap(similarity: Tensor) -> float:
    """Return the middle of the widest gap between similarities in the range where it may be.

    >>> threshold_in_gap(torch.tensor([0.5, 0.87, 0.89, 0.93, 0.99]))
    0.91
    """
    within = (similarity > _LOWEST_THRESHOLD) & (similarity < _HIGHEST_THRESHOLD)
    limits = torch.tensor([_LOWEST_THRESHOLD, _HIGHEST_THRESHOLD])
    ordered = torch.cat([limits, similarity[within]]).sort().values
    widest = int(ordered.diff().argmax())
    return round(float(ordered[widest : widest + 2].mean()), 4)


def show_duplicates(run: str, config: DuplicatesConfig, as_json: bool) -> None:
    """Print the largest groups, write all of them and draw some (`wcl duplicates`)."""
    use_threads(config.threads)
    out = retrieval.table_and_sheet(config.out, "duplicates", as_json)
    source = retrieval.open_images(config.data)
    groups, threshold = find(run, source, config.threshold, config.device, config.num_workers)
    count = "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
    if out and groups:
        table = [
            (number, f"{similarity:.4f}", path)
            for number, group in enumerate(groups, 1)
            for similarity, path in zip(group.similarities, group.paths, strict=True)
        ]
        retrieval.write_table(out[0], ("group", "similarity", "path"), table)
        most = retrieval.ROWS_SHOWN
        rows = [_row(number, group, source) for number, group in enumerate(groups[:most], 1)]
        largest = f", the largest {most} here" if len(groups) > most else ""
        heading = f"{count} of nearly equal images{largest}"
        write_sheet(out[1], contact_sheet(heading, rows, _MEMBERS_SHOWN))
    if as_json:
        about = {"data": retrieval.printable(config.data), "threshold": threshold}
        about |= {"images": len(source), "groups": [asdict(group) for group in groups]}
        print(json.dumps(about))
        return
    if not groups:
        print(f"no two of {len(source):,} images reach a similarity of {threshold}")
        return
    total = sum(len(group.paths) for group in groups)
    print(
        f"{count} with {total:,} of {len(source):,} images, the largest with "
        f"{len(groups[0].paths):,}; similarity {threshold} or more"
    )
    print("group  similarity  path")
    for number, group in enumerate(groups[:_GROUPS_PRINTED], 1):
        members = list(zip(group.similarities, group.paths, strict=True))
        for similarity, path in members[:_MEMBERS_SHOWN]:
            print(f"{number:>5}  {similarity:>10.4f}  {one_line(path)}")
        if len(members) > _MEMBERS_SHOWN:
            print(f"{number:>5}  … and {len(members) - _MEMBERS_SHOWN:,} more")
    if len(groups) > _GROUPS_PRINTED:
        print(f"… and {len(groups) - _GROUPS_PRINTED:,} more groups")
    assert out is not None
    print(f"wrote {out[0]} with all groups, and {out[1]}")


def _row(number: int, group: Duplicates, source: Source) -> Row:
    shown = list(zip(group.indices, group.similarities, strict=True))[:_MEMBERS_SHOWN]
    tiles = [retrieval.image_tile(source, index, f"{alike:.4f}") for index, alike in shown]
    more = f", {_MEMBERS_SHOWN} of them here" if len(group.paths) > _MEMBERS_SHOWN else ""
    return Row(
        f"{number}: {len(group.paths)} images{more}, similarity {group.similarity:.4f} or more",
        [tiles],
    )
