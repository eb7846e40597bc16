"""What an encoder is for first: finding the images most like a given one, and near duplicates."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wcl.apps.contact_sheet import (
    Row,
    Tile,
    contact_sheet,
    source_thumbnail,
    thumbnail,
    write_sheet,
)
from wcl.config import DuplicatesConfig, RetrievalConfig, SearchConfig
from wcl.data import Source, open_source, with_channels
from wcl.data.decode import open_image
from wcl.data.folder import ImageFiles
from wcl.evaluation.features import features_and_rows
from wcl.models.encoder import Encoder, load
from wcl.neighbors import nearest
from wcl.neighbors.groups import linked_groups
from wcl.system.errors import InputError
from wcl.system.files import free_name, new_file
from wcl.system.machine import best_device, check_workers, use_threads
from wcl.system.paths import expanded_image, one_line
from wcl.system.progress import say

_NEIGHBORS_ACROSS = 6
_ROWS_SHOWN, _MEMBERS_SHOWN = 20, 8
_MANY = 10  # photos in a group of copies: more is a series, or a threshold that is too low


@dataclass(frozen=True)
class Neighbor:
    """An image that was found."""

    cosine: float
    path: str
    index: int
    """Its number in the data."""


@dataclass(frozen=True)
class Neighbors:
    """The images most like a query, the most similar first."""

    query: str
    neighbors: list[Neighbor]


@dataclass(frozen=True)
class Duplicates:
    """Images that hang together by similarity."""

    similarity: float
    """Every one of them has another among them that is at least so similar."""
    paths: list[str]
    cosines: list[float]
    """Of each image and the most similar other one."""
    indices: list[int]
    """Their numbers in the data."""


def search(
    run: str | Path | Encoder,
    data: str | Path | Source,
    query: str | Path | Sequence[str | Path],
    k: int = 12,
    device: str = "auto",
    num_workers: int = -1,
) -> list[Neighbors]:
    """The k images of `data` most like each query, by the cosine of their features.

    A query that is one of the files of `data` is not among its own neighbors.

    Args:
        run: a run's folder, an encoder's file, or an encoder.
        data: images, as for pretraining, or an open source.
        query: an image file, or several.
        k: how many neighbors; fewer if there are not so many images.
        device: auto, cpu, cuda or mps.
        workers: processes that decode photos; -1 chooses by the cores at hand.

    Raises:
        InputError: a query is not an image, or something is not there.
    """
    queries = [query] if isinstance(query, str | Path) else list(query)
    if k < 1:
        raise InputError(f"--k: must be at least 1, not {k}")
    check_workers(num_workers)
    encoder = run if isinstance(run, Encoder) else load(run, best_device(device))
    vectors = [encoder.embed(expanded_image(file)) for file in queries]
    source = _open(data)
    bank, rows = _features(encoder, source, num_workers)
    found = []
    for file, vector in zip(queries, vectors, strict=True):
        own = (rows == _number_of(expanded_image(file), source)).nonzero()[:, 0]
        itself = own if len(own) else None
        available = len(bank) - len(own)
        if available == 0:
            raise InputError(f"{source.name}: has no image besides the query")
        cosines, at = nearest(vector, bank, min(k, available), itself, device=encoder.device)
        images = [
            Neighbor(min(cosine, 1.0), source.where(index), index)
            for cosine, index in zip(cosines[0].tolist(), rows[at[0]].tolist(), strict=True)
        ]
        found.append(Neighbors(_text(file), images))
    return found


def duplicates(
    run: str | Path | Encoder,
    data: str | Path | Source,
    threshold: float = 0.97,
    device: str = "auto",
    num_workers: int = -1,
) -> list[Duplicates]:
    """Groups of images that are nearly the same, the largest first.

    Two images are linked if the cosine of their features is at least the threshold, and a group is
    what hangs together by such links.

    Args:
        run: a run's folder, an encoder's file, or an encoder.
        data: images, as for pretraining, or an open source.
        threshold: a cosine, above 0 and at most 1.
        device: auto, cpu, cuda or mps.
        workers: processes that decode photos; -1 chooses by the cores at hand.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"--threshold: must be above 0 and at most 1, not {threshold}")
    check_workers(num_workers)
    encoder = run if isinstance(run, Encoder) else load(run, best_device(device))
    source = _open(data)
    values, rows = _features(encoder, source, num_workers)
    labels, highest = linked_groups(values, threshold, encoder.device)
    linked = (highest > -1).nonzero()[:, 0].numpy()
    linked = linked[np.argsort(labels[linked], kind="stable")]
    ends = np.flatnonzero(np.diff(labels[linked])) + 1
    groups = [
        _group(torch.from_numpy(members), highest, rows, source)
        for members in np.split(linked, ends)
        if len(members)
    ]
    return sorted(groups, key=lambda group: (-len(group.paths), -group.similarity))


def show_search(run: str, config: SearchConfig, as_json: bool) -> None:
    """`wcl search`: a table, and a picture of the queries and their neighbors."""
    files = [file for word in config.query for file in _files(word)]
    if not files:
        raise InputError("--query: name an image to compare with")
    use_threads(config.threads)
    out = _picture(config, "neighbors.png", as_json)
    source = _open(config.data)
    found = search(run, source, files, config.k, config.device, config.num_workers)
    if out:
        drawn = list(zip(files, found, strict=True))[:_ROWS_SHOWN]
        rows = [_query_row(file, one, source) for file, one in drawn]
        heading = f"Most similar images in {one_line(source.name)}, by cosine"
        write_sheet(out, contact_sheet(heading, rows, _NEIGHBORS_ACROSS))
    if as_json:
        print(json.dumps({"data": _text(config.data), "queries": [asdict(one) for one in found]}))
        return
    for one in found:
        print(f"most like {one_line(one.query)}:")
        print("rank  cosine  path")
        for rank, image in enumerate(one.neighbors, 1):
            print(f"{rank:>4}  {image.cosine:>6.3f}  {one_line(image.path)}")
    print(f"wrote {out}")


def show_duplicates(run: str, config: DuplicatesConfig, as_json: bool) -> None:
    """`wcl duplicates`: a table of all groups, and a picture of the largest."""
    use_threads(config.threads)
    out = _picture(config, "duplicates.png", as_json)
    source = _open(config.data)
    found = duplicates(run, source, config.threshold, config.device, config.num_workers)
    if out and found:
        rows = [_group_row(n, group, source) for n, group in enumerate(found[:_ROWS_SHOWN], 1)]
        groups = "1 group" if len(found) == 1 else f"{len(found):,} groups"
        largest = f", the largest {_ROWS_SHOWN} here" if len(found) > _ROWS_SHOWN else ""
        heading = f"{groups} of nearly equal images{largest}"
        write_sheet(out, contact_sheet(heading, rows, _MEMBERS_SHOWN))
    if as_json:
        said = {"data": _text(config.data), "threshold": config.threshold, "images": len(source)}
        print(json.dumps({**said, "groups": [asdict(group) for group in found]}))
        return
    if not found:
        print(f"no two of {len(source):,} images reach a cosine of {config.threshold}")
        return
    print("group  cosine  path")
    for number, group in enumerate(found, 1):
        for cosine, path in zip(group.cosines, group.paths, strict=True):
            print(f"{number:>5}  {_close(cosine)}  {one_line(path)}")
    total = sum(len(group.paths) for group in found)
    groups = "1 group" if len(found) == 1 else f"{len(found):,} groups"
    print(f"{total:,} of {len(source):,} images in {groups}; wrote {out}")
    most = len(found[0].paths)
    if len(source) > 3 and 2 * most > len(source):
        say(f"one group holds most images: {_advice(config.threshold)}")
    elif most > _MANY:
        say(f"the largest group has {most} images; if they differ, {_advice(config.threshold)}")


def _advice(threshold: float) -> str:
    """What to do if nearly all images count as the same."""
    higher = f"{1 - (1 - threshold) / 4:.4g}"
    if float(higher) < 1:
        return f"for this encoder the threshold is too low; try --threshold {higher}"
    return "this encoder hardly tells these images apart; use one that was trained for longer"


def _open(data: str | Path | Source) -> Source:
    if data == "":
        raise InputError("--data: say where the images are")
    return data if isinstance(data, Source) else open_source(str(data))


def _features(encoder: Encoder, source: Source, num_workers: int) -> tuple[Tensor, Tensor]:
    channels = encoder.description.channels
    return features_and_rows(encoder, with_channels(source, channels), num_workers)


def _number_of(query: Path, source: Source) -> int:
    """The number that the file has in a source; -1 if it is none of its files."""
    if not isinstance(source, ImageFiles):
        return -1
    try:
        below = (query.parent.resolve() / query.name).relative_to(source.root.resolve())
        return source.paths.index(below.as_posix())
    except ValueError:
        return -1


def _group(members: Tensor, highest: Tensor, rows: Tensor, source: Source) -> Duplicates:
    cosines, indices = highest[members].tolist(), rows[members].tolist()
    return Duplicates(min(cosines), [source.where(i) for i in indices], cosines, indices)


def _files(word: str) -> list[str]:
    """The files in one `--query`: a name may itself have a comma."""
    with suppress(InputError):  # a long list is not the name of a file
        if expanded_image(word).exists():
            return [word]
    return [file.strip() for file in word.split(",") if file.strip()]


def _picture(config: RetrievalConfig, default: str, as_json: bool) -> Path | None:
    """The file for the picture; who asks for JSON gets one only where he says."""
    if config.out:
        return new_file(config.out, (".png",))
    return None if as_json else free_name(default)


def _query_row(file: str, found: Neighbors, source: Source) -> Row:
    lead = Tile(thumbnail(open_image(expanded_image(file))), "query", _name(found.query))
    tiles = [
        Tile(source_thumbnail(source, image.index), f"{image.cosine:.3f}", _name(image.path))
        for image in found.neighbors
    ]
    return Row(one_line(found.query), [[lead], tiles])


def _group_row(number: int, group: Duplicates, source: Source) -> Row:
    shown = list(zip(group.indices, group.cosines, group.paths, strict=True))[:_MEMBERS_SHOWN]
    tiles = [Tile(source_thumbnail(source, i), _close(cosine), _name(p)) for i, cosine, p in shown]
    more = f", {_MEMBERS_SHOWN} of them here" if len(group.paths) > _MEMBERS_SHOWN else ""
    title = f"{number}: {len(group.paths)} images{more}, cosine {_close(group.similarity)} or more"
    return Row(title, [tiles])


def _close(cosine: float) -> str:
    """A cosine that may be very near 1, but is not called 1 unless it is (but for rounding)."""
    return f"{cosine if cosine > 1 - 1e-6 else min(cosine, 0.9999):.4f}"


def _name(path: str) -> str:
    """The folder and the name: photos of different folders are often called the same."""
    return one_line("/".join(path.rsplit("/", 2)[-2:]))


def _text(path: str | Path) -> str:
    """A path as text: names of files need not be, and what cannot be printed is replaced."""
    return os.fsencode(path).decode(errors="replace")
