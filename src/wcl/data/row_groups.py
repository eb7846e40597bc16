"""Random access to the images of parquet files, by row group."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from wcl.data.parquet_index import ParquetIndex
from wcl.data.remote_path import RemotePath, arrow_file
from wcl.system.progress import track

_LARGE_GROUP = 4 * 2**20  # bytes
_MAX_IN_MEMORY = 2 * 2**30
_MAX_CACHED = 64 * 2**20
_MAX_FOOTERS = 128


class RowGroups:
    """Encoded images by number; the most recently used row groups are cached.

    No file stays open, so forked processes share none. The footers of the most recently used files
    are cached too: reading one takes longer than reading a small row group.

    If row groups are large, reading one for each image takes longer than decoding the image. Then
    the whole set is read into memory, if it fits, before worker processes are forked.
    """

    def __init__(self, files: Sequence[Path | RemotePath], index: ParquetIndex) -> None:
        self._files = files
        self._column = f"{index.column}.bytes"
        self._sizes = index.sizes
        self._first_rows = np.cumsum(index.rows) - index.rows
        self._first_groups = np.cumsum(index.groups) - index.groups
        self.mean_size = float(index.sizes.mean())
        """Bytes of images in a row group."""
        is_large = self.mean_size > _LARGE_GROUP
        self._in_memory = is_large and int(index.sizes.sum()) <= _MAX_IN_MEMORY
        self.slow = is_large and not self._in_memory
        """Whether random access takes longer than decoding."""
        self._clear()
        if self._in_memory:
            self._read_all()

    def _clear(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._groups: OrderedDict[int, Any] = OrderedDict()
        self._footers: OrderedDict[int, Any] = OrderedDict()

    def _read_all(self) -> None:
        import pyarrow

        for group in track(range(len(self._sizes)), "reading row groups"):
            # Damaged row groups are reported when their images are read.
            with suppress(pyarrow.ArrowException, OSError):
                self._group(group)

    def __getitem__(self, index: int) -> bytes | None:
        """Return the bytes of one image, or None if its row has none.

        Raises:
            pyarrow.ArrowException, OSError: they cannot be read.
        """
        # The last group that starts at or before the row; an empty one starts where the next does.
        group = int(np.searchsorted(self._first_rows, index, side="right")) - 1
        with self._lock:
            images = self._group(group)
        row = images[index - int(self._first_rows[group])].as_py()
        return None if row is None else row["bytes"]

    def _group(self, group: int) -> Any:
        """Return the images of one row group as a column."""
        if group in self._groups:
            self._groups.move_to_end(group)
            return self._groups[group]
        images = self._groups[group] = self._read(group)
        self._bytes += int(self._sizes[group])
        while self._bytes > _MAX_CACHED and len(self._groups) > 1 and not self._in_memory:
            oldest, _ = self._groups.popitem(last=False)
            self._bytes -= int(self._sizes[oldest])
        return images

    def _read(self, group: int) -> Any:
        import pyarrow.parquet as pq

        number = int(np.searchsorted(self._first_groups, group, side="right")) - 1
        path, footer = arrow_file(self._files[number]), self._footers.get(number)
        with pq.ParquetFile(path, metadata=footer) as file:
            self._footers[number] = file.metadata
            self._footers.move_to_end(number)
            if len(self._footers) > _MAX_FOOTERS:
                self._footers.popitem(last=False)
            # Forked processes do not have the threads.
            table = file.read_row_group(
                group - int(self._first_groups[number]), [self._column], use_threads=False
            )
        return table.column(0)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the caches: processes that are not forked read the files themselves."""
        caches = ("_lock", "_groups", "_footers")
        return {name: value for name, value in vars(self).items() if name not in caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._clear()
