"""What is in a set of parquet files: their row groups and labels, read once and kept."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wcl.data import kept_index
from wcl.data.kept_index import UNSETTLED
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError
from wcl.system.progress import track

_LABEL_COLUMNS = ("label", "labels", "fine_label")
_MOST_CLASSES = 1_000_000


@dataclass(frozen=True)
class ParquetIndex:
    """Where the images of a set of files are, and their labels."""

    column: str
    """The name of the images' column."""
    groups: Integers
    """Row groups in each file."""
    rows: Integers
    """Rows in each row group, file by file."""
    sizes: Integers
    """Bytes of images in each row group, unpacked."""
    labels: Integers | None
    """The class number of each image, if there are any."""
    classes: Sequence[str]


def parquet_index(name: str, files: Sequence[Path]) -> ParquetIndex:
    """Read the index of these files, or take the one that was kept if none of them has changed.

    Args:
        name: how the user called them together.
        files: in their order.

    Raises:
        InputError: one cannot be read as parquet, or has no images in a column of bytes.
    """
    import pyarrow

    key = b"\0".join(os.fsencode(file.absolute()) for file in files)
    now = kept_index.now()
    try:
        states = [file.stat() for file in files]
        stamps = np.array([kept_index.stamp(status) for status in states], dtype=np.int64)
        index = kept_index.load("parquet", key, lambda kept: _index(kept, stamps))
        if index is not None:
            return index
        index = _read(name, files)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # of columns' names
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{name}: cannot be read as parquet ({reason})") from error
    settled = UNSETTLED not in [kept_index.stamp(status, now) for status in states]
    if settled and index.rows.sum() >= kept_index.WORTH_KEEPING:
        _save(key, stamps, index)
    return index


def _read(name: str, files: Sequence[Path]) -> ParquetIndex:
    import pyarrow.parquet as pq

    schema = pq.read_schema(files[0])
    column = _image_column(schema, files[0])
    label_column = next((label for label in _LABEL_COLUMNS if label in schema.names), None)
    groups: list[int] = []
    rows: list[int] = []
    sizes: list[int] = []
    labels: list[Any] = []
    for path in track(files, "reading parquet files' indexes"):
        with pq.ParquetFile(path) as file:
            if _image_column(file.schema_arrow, path) != column:
                raise InputError(f"{path}: its images are not in the column {column}, as in others")
            if label_column is not None:
                if label_column not in file.schema_arrow.names:
                    raise InputError(f"{path}: has no column {label_column}, as others have")
                if file.schema_arrow.names.count(label_column) > 1:
                    raise InputError(f"{path}: has more than one column {label_column}; leave one")
                labels += _labels(file, label_column)
            metadata = file.metadata
        groups.append(metadata.num_row_groups)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            rows.append(group.num_rows)
            sizes.append(_image_bytes(group, column))
    if sum(rows) == 0:
        raise InputError(f"{name}: no images in it")
    numbers, classes = None, list[str]()
    if label_column is not None:
        numbers, classes = _numbered(labels, _class_names(schema, label_column), name)
    return ParquetIndex(column, np.array(groups), np.array(rows), np.array(sizes), numbers, classes)


def _image_column(schema: Any, file: Path) -> str:
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
    """The values of a column of numbers or words; None for each of any other."""
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
    """Class numbers and the classes' names from a column of labels; None if they are none."""
    if all(isinstance(value, int) for value in values):
        if min(values) < 0:
            return None, []  # as in unlabeled test splits, which mark every row with -1
        if max(values) >= max(len(names), _MOST_CLASSES):
            raise InputError(f"{source}: a label of {max(values)} is no number of a class")
        enough = max(values) < len(names)
        classes = names if enough else [str(i) for i in range(max(values) + 1)]
        return np.array(values, dtype=np.int64), classes
    if all(isinstance(value, str) for value in values):
        classes = sorted(set(values))
        number = {name: i for i, name in enumerate(classes)}
        return np.array([number[value] for value in values], dtype=np.int64), classes
    return None, []


def _class_names(schema: Any, column: str) -> list[str]:
    """Class names that Hugging Face keeps in the schema's metadata, if it did."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])
        names = info["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return []
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return []
    # JSON can name what no file can hold: halves of characters.
    return [name.encode(errors="backslashreplace").decode() for name in names]


def _index(kept: dict[str, Any], stamps: Integers) -> ParquetIndex | None:
    """From the arrays that `_save` kept; None if the files have other stamps now."""
    if not np.array_equal(kept["stamps"], stamps):
        return None
    column, classes = json.loads(kept["words"].tobytes())
    groups, rows, sizes = kept["groups"], kept["rows"], kept["sizes"]
    return ParquetIndex(column, groups, rows, sizes, kept.get("labels"), classes)


def _save(key: bytes, stamps: Integers, index: ParquetIndex) -> None:
    arrays = {
        "stamps": stamps,
        "groups": index.groups,
        "rows": index.rows,
        "sizes": index.sizes,
        "words": kept_index.packed(json.dumps([index.column, list(index.classes)]).encode()),
    }
    if index.labels is not None:
        arrays["labels"] = index.labels
    kept_index.save("parquet", key, arrays)
