"""Parquet files in the layout of Hugging Face image data sets."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from wcl.data.decode import UnreadableImage, open_image
from wcl.data.parquet_index import parquet_index
from wcl.data.planes import Picture
from wcl.data.remote_path import RemotePath, reason
from wcl.data.row_groups import RowGroups
from wcl.data.source import Source
from wcl.system.progress import log


class ParquetSource(Source):
    """Images from one or more parquet files, in the order of the files and their rows."""

    def __init__(self, name: str, files: Sequence[Path | RemotePath]) -> None:
        self.name = name
        self._files = files
        index = parquet_index(name, files)
        # Rows up to the end of each file. A file may have no row groups.
        self._ends = np.append(0, index.rows.cumsum())[index.groups.cumsum()]
        if index.labels is not None:
            self.labels, self.classes = torch.from_numpy(index.labels), index.classes
        self._images = RowGroups(files, index)
        if self._images.slow:
            log(
                f"{name}: reading images at random is slow, because its row groups have "
                f"{self._images.mean_size / 1e6:,.0f} MB each; the page on data sources in "
                "the documentation explains how to write smaller ones"
            )

    def __len__(self) -> int:
        return int(self._ends[-1])

    def image(self, index: int) -> Picture:
        try:
            content = self._images[index]
        except Exception as error:  # of pyarrow, or of a remote file system
            raise UnreadableImage(reason(error)) from error
        if content is None:
            raise UnreadableImage("no bytes in this row")
        return open_image(content)

    def where(self, index: int) -> str:
        file = int(self._ends.searchsorted(index, side="right"))
        row = index - (int(self._ends[file - 1]) if file else 0)
        return f"{self._files[file]} row {row}"

    def _identity(self, times: bool) -> Iterator[bytes]:
        """Yield the end of each file, which has the offsets and statistics of all columns."""
        for path in self._files:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 65536))
                yield f"{size} ".encode() + file.read()
            if times:
                yield (
                    f"{path.stat().st_mtime_ns} " if isinstance(path, Path) else path.stamp(True)
                ).encode()
