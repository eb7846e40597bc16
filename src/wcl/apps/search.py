"""`wcl search`: the images most like a given one."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wcl.apps import retrieval
from wcl.apps.contact_sheet import Row, Tile, contact_sheet, thumbnail, write_sheet
from wcl.config import SearchConfig
from wcl.data import Source
from wcl.data.decode import open_image
from wcl.data.folder import ImageFiles
from wcl.models.encoder import Encoder
from wcl.neighbors import nearest
from wcl.system.errors import InputError
from wcl.system.machine import use_threads
from wcl.system.paths import expanded_image, one_line

_COLUMNS = 6


@dataclass(frozen=True)
class Neighbor:
    """An image that resembles a query."""

    cosine: float
    path: str
    index: int
    """Its index in the data."""


@dataclass(frozen=True)
class Neighbors:
    """The images most like a query, the most similar first."""

    query: str
    neighbors: list[Neighbor]


def search(
    run: str | Path | Encoder,
    data: str | Path | Source,
    query: str | Path | Sequence[str | Path],
    k: int = 12,
    device: str = "auto",
    num_workers: int = -1,
) -> list[Neighbors]:
    """Return the k images of `data` most like each query, by the cosine of their features.

    A query that is one of the files of `data` is not among its own neighbors.

    Args:
        run: a run's folder, an encoder's file, or an encoder.
        data: images, as for pretraining, or an open source.
        query: an image file, or several.
        k: number of neighbors; fewer if there are fewer images.
        device: auto, cpu, cuda or mps.
        num_workers: processes that decode photos; -1 chooses by the available cores.

    Raises:
        InputError: a query is not an image, or there is no such encoder or data.
    """
    queries = [query] if isinstance(query, str | Path) else list(query)
    if k < 1:
        raise InputError(f"--k: must be at least 1, not {k}")
    encoder = retrieval.open_encoder(run, device, num_workers)
    vectors = [encoder.embed(expanded_image(file)) for file in queries]
    source = retrieval.open_images(data)
    bank, indices = retrieval.image_features(encoder, source, num_workers)
    results = []
    for file, vector in zip(queries, vectors, strict=True):
        own_index = _index_in(source, expanded_image(file))
        cosines, rows = nearest(vector, bank, min(k + 1, len(bank)), device=encoder.device)
        neighbors = [
            Neighbor(min(cosine, 1.0), source.where(index), index)
            for cosine, index in zip(cosines[0].tolist(), indices[rows[0]].tolist(), strict=True)
            if index != own_index
        ]
        if not neighbors:
            raise InputError(f"{source.name}: has no image besides the query")
        results.append(Neighbors(retrieval.printable(file), neighbors[:k]))
    return results


def _index_in(source: Source, query: Path) -> int:
    """Return the index of a file in a source, or -1 if it is not one of its files."""
    if not isinstance(source, ImageFiles):
        return -1
    try:
        below = (query.parent.resolve() / query.name).relative_to(source.root.resolve())
        return source.paths.index(below.as_posix())
    except ValueError:
        return -1


def show_search(run: str, config: SearchConfig, as_json: bool) -> None:
    """Print a table and draw the queries with their neighbors (`wcl search`)."""
    files = [file for value in config.query for file in _files(value)]
    if not files:
        raise InputError("--query: name an image to compare with")
    use_threads(config.threads)
    out = retrieval.sheet_path(config.out, "neighbors.png", as_json)
    source = retrieval.open_images(config.data)
    results = search(run, source, files, config.k, config.device, config.num_workers)
    if out:
        shown = list(zip(files, results, strict=True))[: retrieval.ROWS_SHOWN]
        rows = [_row(file, result, source) for file, result in shown]
        heading = f"Most similar images in {one_line(source.name)}, by cosine"
        write_sheet(out, contact_sheet(heading, rows, _COLUMNS))
    if as_json:
        queries = [asdict(result) for result in results]
        print(json.dumps({"data": retrieval.printable(config.data), "queries": queries}))
        return
    for result in results:
        print(f"most like {one_line(result.query)}:")
        print("rank  cosine  path")
        for rank, image in enumerate(result.neighbors, 1):
            print(f"{rank:>4}  {image.cosine:>6.3f}  {one_line(image.path)}")
    print(f"wrote {out}")


def _files(value: str) -> list[str]:
    """Split the files of one `--query` at its commas, unless it is itself the name of a file."""
    with suppress(InputError):  # a long list cannot be the name of a file
        if expanded_image(value).exists():
            return [value]
    return [file.strip() for file in value.split(",") if file.strip()]


def _row(file: str, result: Neighbors, source: Source) -> Row:
    image = thumbnail(open_image(expanded_image(file)), source.levels)
    query = Tile(image, "query", retrieval.short_name(result.query))
    tiles = [
        retrieval.image_tile(source, neighbor.index, f"{neighbor.cosine:.3f}")
        for neighbor in result.neighbors
    ]
    return Row(one_line(result.query), [[query], tiles])
