"""`wcl duplicates`: groups of images that are nearly the same."""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from wcl.apps import retrieval
from wcl.apps.contact_sheet import Row, contact_sheet, write_sheet
from wcl.config import DuplicatesConfig
from wcl.data import Source
from wcl.models.encoder import Encoder
from wcl.neighbors.groups import linked_groups
from wcl.system.errors import InputError
from wcl.system.machine import use_threads
from wcl.system.paths import one_line
from wcl.system.progress import log

_MEMBERS_SHOWN = 8
_LARGE_GROUP = 10  # larger ones are rarely copies: they are series, or the threshold is too low


@dataclass(frozen=True)
class Duplicates:
    """A group of images that are linked by their similarity."""

    similarity: float
    """The smallest of `cosines`."""
    paths: list[str]
    cosines: list[float]
    """Cosine of each image and the most similar other one."""
    indices: list[int]
    """The images' indices in the data."""


def duplicates(
    run: str | Path | Encoder,
    data: str | Path | Source,
    threshold: float = 0.97,
    device: str = "auto",
    num_workers: int = -1,
) -> list[Duplicates]:
    """Return groups of images that are nearly the same, the largest first.

    Two images are linked if the cosine of their features is at least the threshold; groups are the
    connected components of these links.

    Args:
        run: a run's folder, an encoder's file, or an encoder.
        data: images, as for pretraining, or an open source.
        threshold: a cosine, above 0 and at most 1.
        device: auto, cpu, cuda or mps.
        num_workers: processes that decode photos; -1 chooses by the available cores.

    Raises:
        InputError: no encoder, no such data, or a setting that is out of range.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"--threshold: must be above 0 and at most 1, not {threshold}")
    encoder = retrieval.open_encoder(run, device, num_workers)
    source = retrieval.open_images(data)
    features, indices = retrieval.image_features(encoder, source, num_workers)
    labels, highest = linked_groups(features, threshold, encoder.device)
    members: dict[int, list[int]] = defaultdict(list)
    for row in (highest > -1).nonzero()[:, 0].tolist():
        members[int(labels[row])].append(row)
    groups = []
    for rows in members.values():
        cosines, images = highest[rows].tolist(), indices[rows].tolist()
        paths = [source.where(index) for index in images]
        groups.append(Duplicates(min(cosines), paths, cosines, images))
    return sorted(groups, key=lambda group: (-len(group.paths), -group.similarity))


def show_duplicates(run: str, config: DuplicatesConfig, as_json: bool) -> None:
    """Print a table of all groups and draw the largest (`wcl duplicates`)."""
    use_threads(config.threads)
    out = retrieval.sheet_path(config, "duplicates.png", as_json)
    source = retrieval.open_images(config.data)
    groups = duplicates(run, source, config.threshold, config.device, config.num_workers)
    count = "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
    if out and groups:
        most = retrieval.ROWS_SHOWN
        rows = [_row(number, group, source) for number, group in enumerate(groups[:most], 1)]
        largest = f", the largest {most} here" if len(groups) > most else ""
        heading = f"{count} of nearly equal images{largest}"
        write_sheet(out, contact_sheet(heading, rows, _MEMBERS_SHOWN))
    if as_json:
        about = {"data": retrieval.printable(config.data), "threshold": config.threshold}
        about |= {"images": len(source), "groups": [asdict(group) for group in groups]}
        print(json.dumps(about))
        return
    if not groups:
        print(f"no two of {len(source):,} images reach a cosine of {config.threshold}")
        return
    print("group  cosine  path")
    for number, group in enumerate(groups, 1):
        for cosine, path in zip(group.cosines, group.paths, strict=True):
            print(f"{number:>5}  {_four_digits(cosine)}  {one_line(path)}")
    total = sum(len(group.paths) for group in groups)
    print(f"{total:,} of {len(source):,} images in {count}; wrote {out}")
    _warn_of_large_groups(len(groups[0].paths), len(source), config.threshold)


def _warn_of_large_groups(largest: int, images: int, threshold: float) -> None:
    higher = f"{1 - (1 - threshold) / 4:.4g}"
    advice = f"for this encoder the threshold is too low; try --threshold {higher}"
    if float(higher) >= 1:
        advice = "this encoder hardly separates these images; use one that was trained for longer"
    if images > 3 and 2 * largest > images:
        log(f"one group holds most images: {advice}")
    elif largest > _LARGE_GROUP:
        log(f"the largest group has {largest} images; if they differ, {advice}")


def _row(number: int, group: Duplicates, source: Source) -> Row:
    shown = list(zip(group.indices, group.cosines, strict=True))[:_MEMBERS_SHOWN]
    tiles = [retrieval.image_tile(source, index, _four_digits(cosine)) for index, cosine in shown]
    more = f", {_MEMBERS_SHOWN} of them here" if len(group.paths) > _MEMBERS_SHOWN else ""
    similarity = _four_digits(group.similarity)
    return Row(f"{number}: {len(group.paths)} images{more}, cosine {similarity} or more", [tiles])


def _four_digits(cosine: float) -> str:
    """Format a cosine that may be close to 1: only 1, up to rounding, is shown as 1."""
    return f"{cosine if cosine > 1 - 1e-6 else min(cosine, 0.9999):.4f}"
