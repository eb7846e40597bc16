"""Writers for the output of `wcl embed`: one per file format, each from a stream of parts."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Part(NamedTuple):
    """Some rows of the output."""

    texts: list[list[str]]
    """Columns of text: the paths, and the classes of labeled images."""
    vectors: NDArray[np.float32]


class Layout(NamedTuple):
    """Size and type of a file of vectors, known before its first part."""

    rows: int
    dimensions: int
    texts: list[str]
    """Names of the columns of text."""


def paths_file(file: Path) -> Path:
    """Return the table that names the rows of a .npy file."""
    return file.with_suffix(".paths.csv")


def _write_parquet(file: Path, parts: Iterable[Part], layout: Layout) -> None:
    """Write a row group for each part."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    vector = pyarrow.list_(pyarrow.float32(), layout.dimensions)
    fields = [*((name, pyarrow.string()) for name in layout.texts), ("vector", vector)]
    # Labels repeat; paths and numbers do not, so a dictionary of them would only cost space.
    with ParquetWriter(file, pyarrow.schema(fields), use_dictionary=["label"]) as writer:
        for part in parts:
            flat = part.vectors.reshape(-1)
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, layout.dimensions)
            writer.write_table(pyarrow.table([*part.texts, vectors], schema=writer.schema))


def _write_npy(file: Path, parts: Iterable[Part], layout: Layout) -> None:
    """Write an array, and beside it a table of the images of its rows."""
    shape = (layout.rows, layout.dimensions)
    header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
    row = 0
    with (
        file.open("wb") as array,
        paths_file(file).open("w", newline="", encoding="utf-8") as table,
    ):
        np.lib.format.write_array_header_1_0(array, header)
        writer = csv.writer(table)
        writer.writerow(["row", *layout.texts])
        for part in parts:
            array.write(part.vectors.tobytes())
            end = row + len(part.vectors)
            writer.writerows(zip(range(row, end), *part.texts, strict=True))
            row = end


def _write_csv(file: Path, parts: Iterable[Part], layout: Layout) -> None:
    """Write a line per image, each number in the shortest form that reads back the same."""
    with file.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table)
        writer.writerow([*layout.texts, *(f"v{i}" for i in range(layout.dimensions))])
        for part in parts:
            vectors = part.vectors.astype(str)
            for *texts, vector in zip(*part.texts, vectors, strict=True):
                writer.writerow([*texts, *vector])


WRITERS: dict[str, Callable[[Path, Iterable[Part], Layout], None]] = {
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".csv": _write_csv,
}
"""By the suffix of the file."""
