"""Writers for the output of `wcl embed`: one per file format, each from a stream of parts."""

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Part(NamedTuple):
    """Some rows of the output."""

    paths: list[str]
    labels: list[str]
    """Class of each image; empty if it has none."""
    vectors: NDArray[np.float32]


class Shape(NamedTuple):
    """What a writer must know before the first part."""

    rows: int
    dimensions: int
    labeled: bool


def paths_file(file: Path) -> Path:
    """Return the table that names the rows of a .npy file."""
    return file.with_suffix(".paths.csv")


def _write_parquet(file: Path, parts: Iterable[Part], shape: Shape) -> None:
    """Write a row group for each part."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    texts = ["path", "label"] if shape.labeled else ["path"]
    vector = pyarrow.list_(pyarrow.float32(), shape.dimensions)
    fields = [*((name, pyarrow.string()) for name in texts), ("vector", vector)]
    # Labels repeat; paths and numbers do not, so a dictionary of them would only cost space.
    with ParquetWriter(file, pyarrow.schema(fields), use_dictionary=["label"]) as writer:
        for part in parts:
            columns = [part.paths, *([part.labels] if shape.labeled else [])]
            flat = part.vectors.reshape(-1)
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, shape.dimensions)
            writer.write_table(pyarrow.table([*columns, vectors], schema=writer.schema))


def _write_npy(file: Path, parts: Iterable[Part], shape: Shape) -> None:
    """Write an array, and beside it a table of the images of its rows."""
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    size = (shape.rows, shape.dimensions)
    header = {"descr": descr, "fortran_order": False, "shape": size}
    row = 0
    with (
        file.open("wb") as array,
        paths_file(file).open("w", newline="", encoding="utf-8") as table,
    ):
        np.lib.format.write_array_header_1_0(array, header)
        writer = csv.writer(table)
        writer.writerow(["row", "path", *(["label"] if shape.labeled else [])])
        for part in parts:
            array.write(part.vectors.tobytes())
            for texts in _texts(part, shape.labeled):
                writer.writerow([row, *texts])
                row += 1


def _write_csv(file: Path, parts: Iterable[Part], shape: Shape) -> None:
    """Write a line per image, each number in the shortest form that reads back the same."""
    with file.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table)
        names = ["path", *(["label"] if shape.labeled else [])]
        writer.writerow([*names, *(f"v{i}" for i in range(shape.dimensions))])
        for part in parts:
            vectors = part.vectors.astype(str)
            for texts, vector in zip(_texts(part, shape.labeled), vectors, strict=True):
                writer.writerow([*texts, *vector])


def _texts(part: Part, labeled: bool) -> Iterator[tuple[str, ...]]:
    columns = [part.paths, part.labels] if labeled else [part.paths]
    return zip(*columns, strict=True)


WRITERS: dict[str, Callable[[Path, Iterable[Part], Shape], None]] = {
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".csv": _write_csv,
}
"""By the suffix of the file."""
