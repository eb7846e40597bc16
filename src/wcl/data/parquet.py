"""Parquet in the layout of Hugging Face image data sets: a struct of bytes, and perhaps a label."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from wcl.data.decode import UnreadableImage, open_image
from wcl.data.source import Source
from wcl.errors import InputError

_MOST_CLASSES = 1_000_000


class ParquetSource(Source):
    """Images from one or more parquet files, in the order of the files and their rows."""

    def __init__(self, name: str, files: list[Path]) -> None:
        import pyarrow
        import pyarrow.parquet as pq

        self.name = name
        try:
            schema = pq.read_schema(files[0])
            image_column = _image_column(schema)
            if image_column is None:
                raise InputError(
                    f"{files[0]}: no column of images (a struct with `bytes`) among "
                    f"{', '.join(schema.names)}"
                )
            label_column = next(
                (n for n in ("label", "labels", "fine_label") if n in schema.names), None
            )
            columns = [column for column in (image_column, label_column) if column]
            table = pyarrow.concat_tables(
                [pq.read_table(file, columns=columns, memory_map=True) for file in files]
            )
        except (pyarrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{name}: cannot be read as parquet ({reason})") from error
        self._files = files
        self._images = table[image_column]
        if len(self._images) == 0:
            raise InputError(f"{name}: no images in it")
        if label_column:
            self._read_labels(table[label_column], _class_names(schema, label_column))

    def _read_labels(self, column: Any, names: list[str]) -> None:
        values = column.to_pylist()
        if all(isinstance(value, int) for value in values):
            if min(values) < 0:
                return  # as in unlabelled test splits, which mark every row with -1
            if max(values) >= max(len(names), _MOST_CLASSES):
                raise InputError(f"{self.name}: a label of {max(values)} is no number of a class")
            self.labels = torch.tensor(values, dtype=torch.long)
            enough = max(values) < len(names)
            self.classes = names if enough else [str(i) for i in range(max(values) + 1)]
        elif all(isinstance(value, str) for value in values):
            self.classes = sorted(set(values))
            number = {name: i for i, name in enumerate(self.classes)}
            self.labels = torch.tensor([number[value] for value in values])

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int) -> Image.Image:
        content = self._images[index]["bytes"].as_py()
        if content is None:
            raise UnreadableImage("no bytes in this row")
        return open_image(content)

    def where(self, index: int) -> str:
        return f"{self.name} row {index}"

    def _identity(self, times: bool) -> Iterator[bytes]:
        """The end of each file: it has the places and the statistics of everything before."""
        for path in self._files:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 65536))
                yield f"{size} ".encode() + file.read()


def _image_column(schema: Any) -> str | None:
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
    return None


def _class_names(schema: Any, column: str) -> list[str]:
    """Class names that Hugging Face keeps in the schema's metadata, if it did."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])
        return list(info["info"]["features"][column]["names"])
    except (KeyError, TypeError, ValueError):
        return []
