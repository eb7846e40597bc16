"""`wcl data SRC`: what is there, before anything is trained on it."""

from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from wcl.config import DataConfig
from wcl.data import ArraySource, Source, open_split
from wcl.data.decode import UnreadableImage, decoded, upright_size
from wcl.data.workers import worker_count
from wcl.system.paths import one_line
from wcl.system.progress import track

_SPLITS = ("training", "test")
_NAMED = 12  # classes
_AT_A_TIME = 1000


@dataclass(frozen=True)
class Found:
    """What a source holds."""

    count: int
    sizes: Counter[tuple[int, int]]
    """(height, width) → images."""
    classes: dict[str, int]
    unreadable: dict[str, str]
    """Where → why."""


def examine(source: Source) -> Found:
    """Open and decode every image, in threads, and count."""
    sizes: Counter[tuple[int, int]] = Counter()
    unreadable: dict[str, str] = {}
    if isinstance(source, ArraySource):
        sizes[(source.pixels.shape[2], source.pixels.shape[3])] = len(source)
    else:
        looks = track(_looks(source), "looking at images", len(source))
        for index, result in enumerate(looks):
            if isinstance(result, str):
                unreadable[source.where(index)] = result
            else:
                sizes[result] += 1
    classes: dict[str, int] = {}
    if source.labels is not None:
        counts = torch.bincount(source.labels, minlength=len(source.classes))
        classes = dict(zip(source.classes, counts.tolist(), strict=True))
    elif source.multi_labels is not None:
        counts = (source.multi_labels == 1).sum(dim=0)
        classes = dict(zip(source.classes, counts.tolist(), strict=True))
    return Found(len(source), sizes, classes, unreadable)


def _looks(source: Source) -> Generator[tuple[int, int] | str]:
    """What `_look` says of every image.

    Some are handed to the threads at a time: all of a large source would take them long, before
    the first is looked at, and much memory.
    """
    with ThreadPoolExecutor(worker_count(-1) + 1) as pool:
        for first in range(0, len(source), _AT_A_TIME):
            some = range(first, min(first + _AT_A_TIME, len(source)))
            yield from pool.map(lambda index: _look(source, index), some)


def _look(source: Source, index: int) -> tuple[int, int] | str:
    try:
        image = source.image(index)
        size = upright_size(image)
        image.draft(None, (1, 1))  # an eighth of a JPEG is enough to see that it is whole
        decoded(image)
    except UnreadableImage as error:
        return str(error)
    return size


def describe(config: DataConfig, spec: str) -> list[Found]:
    """Print what a source holds: one column, or one for each split."""
    found = [examine(source) for source in open_split(spec, "all")]
    table = Table(show_header=len(found) > 1)
    for heading in ("", *_SPLITS[: len(found)]):
        table.add_column(heading)
    table.add_row("images", *(f"{split.count:,}" for split in found))
    table.add_row("sizes", *(_sizes(split.sizes) for split in found))
    table.add_row("classes", *(_classes(split.classes) for split in found))
    table.add_row("unreadable", *(f"{len(split.unreadable):,}" for split in found))
    Console().print(table)
    names = list(dict.fromkeys(name for split in found for name in split.classes))
    if names:
        more = ["…"] if len(names) > _NAMED else []
        print(f"classes: {', '.join([*map(one_line, names[:_NAMED]), *more])}")
    unreadable = [(where, why) for split in found for where, why in split.unreadable.items()]
    for where, why in unreadable[: config.most]:
        print(f"unreadable: {one_line(f'{where}: {why}')}")
    if (left := len(unreadable) - config.most) > 0:
        print(f"… and {left} more; --most {len(unreadable)} names them all")
    return found


def _sizes(sizes: Counter[tuple[int, int]]) -> str:
    if not sizes:
        return "none"
    (height, width), count = sizes.most_common(1)[0]
    if len(sizes) == 1:
        return f"all {height}×{width}"
    heights, widths = zip(*sizes, strict=True)
    return (
        f"{min(heights)}–{max(heights)} high, {min(widths)}–{max(widths)} wide; "
        f"{len(sizes)} different, most often {height}×{width} ({count:,} images)"
    )


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none: the images have no labels (and need none for pretraining)"
    counts = classes.values()
    least, most = min(counts), max(counts)
    each = f"{least:,}" if least == most else f"{least:,}–{most:,}"
    return f"{len(classes)} with {each} images each"
