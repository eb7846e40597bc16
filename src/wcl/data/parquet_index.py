"""Index of a set of parquet files: their row groups and labels, read once and cached."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wcl.data import index_cache
from wcl.data.index_cache import UNSETTLED
from wcl.data.remote_path import RemotePath, arrow_file, reason
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError
from wcl.system.progress import track

_LABEL_COLUMNS = ("label", "labels", "fine_label")
_MAX_CLASSES = 1_000_000


@dataclass(frozen=True)
class ParquetIndex:
    """Where the images of a set of files are, and their labels."""

    column: str
    """Name of the column of images."""
    groups: Integers
    """Row groups in each file."""
    rows: Integers
    """Rows in each row group of all files."""
    sizes: Integers
    """Uncompressed bytes of images in each row group."""
    labels: Integers | None
    """Class number of each image, or None."""
    classes: Sequence[str]


def parquet_index(name: str, files: Sequence[Path | RemotePath]) -> ParquetIndex:
    """Return the index of these files, from the cache if none of them has changed.

    Indexes of remote files are not cached: not every file system has times of change.

    Args:
        name: of the source, for messages.
        files: in order.

    Raises:
        InputError: a file is not parquet, or has no column of images.
        FileNotFoundError: there is no such file.
    """
    import pyarrow

    local = [file for file in files if isinstance(file, Path)]
    key = b"\0".join(os.fsencode(file.absolute()) for file in local)
    now = index_cache.now()
    try:
        if len(local) < len(files):
            return _read(name, files)
        states = [file.stat() for file in local]
        stamps = np.array([index_cache.stamp(status) for status in states], dtype=np.int64)
        index = index_cache.load("parquet", key, lambda cached: _index(cached, stamps))
        if index is not None:
            return index
        index = _read(name, files)
    except FileNotFoundError:
        raise
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # of column names
        raise InputError(f"{name}: cannot be read as parquet ({reason(error)})") from error
    settled = UNSETTLED not in [index_cache.stamp(status, now) for status in states]
    if settled and index.rows.sum() >= index_cache.MIN_IMAGES:
        _save(key, stamps, index)
    return index


def _read(name: str, files: Sequence[Path | RemotePath]) -> ParquetIndex:
    import pyarrow.parquet as pq

    schema = pq.read_schema(arrow_file(files[0]))
    column = _image_column(schema, files[0])
    label_column = next((label for label in _LABEL_COLUMNS if label in schema.names), None)
    groups: list[int] = []
    rows: list[int] = []
    sizes: list[int] = []
    labels: list[Any] = []
    for path in track(files, "reading the indexes of parquet files"):
        with pq.ParquetFile(arrow_file(path)) as file:
            if _image_column(file.schema_arrow, path) != column:
                raise InputError(f"{path}: no images in the column {column}, unlike other files")
            if label_column is not None:
                if label_column not in file.schema_arrow.names:
                    raise InputError(f"{path}: no column {label_column}, unlike other files")
                if file.schema_arrow.names.count(label_column) > 1:
                    raise InputError(f"{path}: has more than one column {label_column}; keep one")
                labels += _labels(file, label_column)
            metadata = file.metadata
        groups.append(metadata.num_row_groups)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            rows.append(group.num_rows)
            sizes.append(_image_bytes(group, column))
    if sum(rows) == 0:
        raise InputError(f"{name}: has no images")
    numbers, classes = None, list[str]()
    if label_column is not None:
        numbers, classes = _numbered(labels, _class_names(schema, label_column), name)
    return ParquetIndex(column, np.array(groups), np.array(rows), np.array(sizes), numbers, classes)


def _image_column(schema: Any, file: Path | RemotePath) -> str:
    import pyarrow

    for field in schema:
        if not pyarrow.types.is_struct(field.type):
            continue
        position = field.type.get_field_index("bytes")
        if position >= 0 and field.type.field(position).type in (
            pyarrow.binary(),
            pyarrow.large_binary(),
        ):
            return str(field.name)
    raise InputError(
        f"{file}: no column of images (a struct with `bytes`) among {', '.join(schema.names)}"
    )


def _labels(file: Any, column: str) -> list[Any]:
    """Return the values of a column of numbers or strings; Nones for other types."""
    from pyarrow import types

    kind = file.schema_arrow.field(column).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not any(
        is_kind(kind)
        for is_kind in (types.is_integer, types.is_boolean, types.is_string, types.is_large_string)
    ):
        return [None] * file.metadata.num_rows
    values: list[Any] = file.read([column], use_threads=False)[column].to_pylist()
    return values


def _image_bytes(group: Any, column: str) -> int:
    chunks = (group.column(number) for number in range(group.num_columns))
    wanted = f"{column}.bytes"
    return sum(c.total_uncompressed_size for c in chunks if c.path_in_schema == wanted)


def _numbered(
    values: list[Any], names: list[str], source: str
) -> tuple[Integers | None, list[str]]:
    """Return class numbers and class names from a column of labels; None if they are no classes."""
    if all(isinstance(value, int) for value in values):
        if min(values) < 0:
            return None, []  # as in unlabeled test splits, which mark every row with -1
        if max(values) >= max(len(names), _MAX_CLASSES):
            raise InputError(f"{source}: its label {max(values)} is too large for a class number")
        enough = max(values) < len(names)
        classes = names if enough else [str(i) for i in range(max(values) + 1)]
        return np.array(values, dtype=np.int64), classes
    if all(isinstance(value, str) for value in values):
        classes = sorted(set(values))
        number = {name: i for i, name in enumerate(classes)}
        return np.array([number[value] for value in values], dtype=np.int64), classes
    return None, []


def _class_names(schema: Any, column: str) -> list[str]:
    """Return the class names that Hugging Face stores in the schema, or an empty list."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])
        names = info["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return []
    # JSON can hold halves of surrogate pairs, which cannot be written as UTF-8.
    return [name.encode(errors="backslashreplace").decode() for name in names]


def _index(cached: dict[str, Any], stamps: Integers) -> ParquetIndex | None:
    """Return the index from the arrays of `_save`; None if the files have changed since."""
    if not np.array_equal(cached["stamps"], stamps):
        return None
    column, classes = json.loads(cached["words"].tobytes())
    groups, rows, sizes = cached["groups"], cached["rows"], cached["sizes"]
    return ParquetIndex(column, groups, rows, sizes, cached.get("labels"), classes)


def _save(key: bytes, stamps: Integers, index: ParquetIndex) -> None:
    arrays = {
        "stamps": stamps,
        "groups": index.groups,
        "rows": index.rows,
        "sizes": index.sizes,
        "words": index_cache.as_array(json.dumps([index.column, list(index.classes)]).encode()),
    }
    if index.labels is not None:
        arrays["labels"] = index.labels
    index_cache.save("parquet", key, arrays)
