"""`wcl data SRC`: what a source holds, before anything is trained on it."""

from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from wcl.config import DataConfig
from wcl.data import ArraySource, Source, describe_left_out, measured_levels, open_split
from wcl.data.decode import UnreadableImage, decoded, upright_size
from wcl.data.levels import Levels, described_levels
from wcl.data.workers import worker_count
from wcl.system.paths import one_line
from wcl.system.progress import track

_SPLITS = ("training", "test")
_CLASSES_NAMED = 12
_IMAGES_QUEUED = 1000


@dataclass(frozen=True)
class Summary:
    """Number, sizes and classes of the images of a source."""

    count: int
    sizes: Counter[tuple[int, int]]
    """(height, width) → images."""
    classes: dict[str, int]
    unreadable: dict[str, str]
    """Path → reason."""


def examine(source: Source) -> Summary:
    """Count the images, their sizes and their classes; every image is decoded, in threads."""
    sizes: Counter[tuple[int, int]] = Counter()
    unreadable: dict[str, str] = {}
    if isinstance(source, ArraySource):
        sizes[(source.pixels.shape[2], source.pixels.shape[3])] = len(source)
    else:
        results = track(_sizes_or_errors(source), "checking images", len(source))
        for index, result in enumerate(results):
            if isinstance(result, str):
                unreadable[source.where(index)] = result
            else:
                sizes[result] += 1
    counts = torch.empty(0)
    if source.labels is not None:
        counts = torch.bincount(source.labels, minlength=len(source.classes))
    elif source.multi_labels is not None:
        counts = (source.multi_labels == 1).sum(dim=0)
    classes = dict(zip(source.classes, counts.tolist(), strict=True))
    return Summary(len(source), sizes, classes, unreadable)


def _sizes_or_errors(source: Source) -> Generator[tuple[int, int] | str]:
    """Yield what `_size_or_error` returns for every image.

    The threads get some images at a time: to queue a large source takes long and much memory.
    """
    with ThreadPoolExecutor(worker_count(-1) + 1) as pool:
        for first in range(0, len(source), _IMAGES_QUEUED):
            some = range(first, min(first + _IMAGES_QUEUED, len(source)))
            yield from pool.map(lambda index: _size_or_error(source, index), some)


def _size_or_error(source: Source, index: int) -> tuple[int, int] | str:
    """Return an image's height and width, or why it cannot be read."""
    try:
        image = source.image(index)
        size = upright_size(image)
        image.draft(None, (1, 1))  # a JPEG at an eighth of its size shows that it is complete
        decoded(image, source.channels, source.levels)
    except UnreadableImage as error:
        return str(error)
    return size


def describe(config: DataConfig, spec: str) -> None:
    """Print what a source holds, with a column for each split."""
    sources = open_split(spec, "all")
    splits = [examine(source) for source in sources]
    table = Table(show_header=len(splits) > 1)
    for heading in ("", *_SPLITS[: len(splits)]):
        table.add_column(heading)
    table.add_row("images", *(f"{split.count:,}" for split in splits))
    table.add_row("sizes", *(_sizes(split.sizes) for split in splits))
    table.add_row("classes", *(_classes(split.classes) for split in splits))
    table.add_row("unreadable", *(f"{len(split.unreadable):,}" for split in splits))
    if sources[0].channels not in (1, 3):
        table.add_row("channels", *(str(source.channels) for source in sources))
    ranges = [measured_levels(source, seed=0) for source in sources]
    if any(ranges):
        table.add_row("more than 8 bits", *(_levels(levels) for levels in ranges))
    Console().print(table)
    if left_out := describe_left_out(*sources):
        print(left_out)
    names = list(dict.fromkeys(name for split in splits for name in split.classes))
    if names:
        more = ["…"] if len(names) > _CLASSES_NAMED else []
        print(f"classes: {', '.join([*map(one_line, names[:_CLASSES_NAMED]), *more])}")
    unreadable = [item for split in splits for item in split.unreadable.items()]
    for path, reason in unreadable[: config.max_listed]:
        print(f"unreadable: {one_line(f'{path}: {reason}')}")
    if (left := len(unreadable) - config.max_listed) > 0:
        print(f"… and {left} more; --max_listed {len(unreadable)} names them all")


def _sizes(sizes: Counter[tuple[int, int]]) -> str:
    if not sizes:
        return "none"
    (height, width), count = sizes.most_common(1)[0]
    if len(sizes) == 1:
        return f"all {height}×{width}"
    heights, widths = zip(*sizes, strict=True)
    often = f", most often {height}×{width} ({count:,} images)" if count > 1 else ""
    return (
        f"{min(heights)}–{max(heights)} high, {min(widths)}–{max(widths)} wide; "
        f"{len(sizes)} different{often}"
    )


def _levels(levels: Levels) -> str:
    return f"black and white are {described_levels(levels)}" if levels else "no"


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none: the images have no labels (and need none for pretraining)"
    counts = classes.values()
    least, most = min(counts), max(counts)
    each = f"{least:,}" if least == most else f"{least:,}–{most:,}"
    return f"{len(classes)} with {each} images each"
