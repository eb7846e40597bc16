"""Random access to the images of parquet files: a row group is the least that can be read."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from wcl.data.parquet_index import ParquetIndex
from wcl.system.progress import track

_LARGE = 4 * 2**20
_HELD = 2 * 2**30
_RECENT = 64 * 2**20
_FOOTERS = 128


class RowGroups:
    """Bytes of images by their number; the row groups last used are kept within some memory.

    No file stays open, so that forked processes have none in common. The files' footers, which
    take longer to read than a small row group, are kept for the files last used.

    Where row groups are large, reading one for each image would take longer than decoding it. If
    the whole set fits into memory, it is then read at once, before processes are forked that would
    each read it for themselves.
    """

    def __init__(self, files: Sequence[Path], index: ParquetIndex) -> None:
        self._files = files
        self._column = f"{index.column}.bytes"
        self._sizes = index.sizes
        self._first_rows = np.cumsum(index.rows) - index.rows
        self._first_groups = np.cumsum(index.groups) - index.groups
        self.mean_size = float(index.sizes.mean())
        """Bytes of images in a row group."""
        large = self.mean_size > _LARGE
        self._held = large and int(index.sizes.sum()) <= _HELD
        self.slow = large and not self._held
        """Whether random access takes longer than decoding."""
        self._forget()
        if self._held:
            self._read_all()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._groups: OrderedDict[int, Any] = OrderedDict()
        self._footers: OrderedDict[int, Any] = OrderedDict()

    def _read_all(self) -> None:
        import pyarrow

        for group in track(range(len(self._sizes)), "reading row groups"):
            # Whose images are damaged is said when they are asked for.
            with suppress(pyarrow.ArrowException, OSError):
                self._group(group)

    def __getitem__(self, index: int) -> bytes | None:
        """The bytes of one image, or None if its row has none.

        Raises:
            pyarrow.ArrowException, OSError: they cannot be read.
        """
        # The last group that begins at or before the row: empty ones begin where the next does.
        group = int(np.searchsorted(self._first_rows, index, side="right")) - 1
        with self._lock:
            images = self._group(group)
        row = images[index - int(self._first_rows[group])].as_py()
        return None if row is None else row["bytes"]

    def _group(self, group: int) -> Any:
        """The images of one row group, a column in memory."""
        if group in self._groups:
            self._groups.move_to_end(group)
            return self._groups[group]
        images = self._groups[group] = self._read(group)
        self._bytes += int(self._sizes[group])
        while self._bytes > _RECENT and len(self._groups) > 1 and not self._held:
            oldest, _ = self._groups.popitem(last=False)
            self._bytes -= int(self._sizes[oldest])
        return images

    def _read(self, group: int) -> Any:
        import pyarrow.parquet as pq

        number = int(np.searchsorted(self._first_groups, group, side="right")) - 1
        with pq.ParquetFile(self._files[number], metadata=self._footers.get(number)) as file:
            self._footers[number] = file.metadata
            self._footers.move_to_end(number)
            if len(self._footers) > _FOOTERS:
                self._footers.popitem(last=False)
            # Without threads, which a forked process would not have.
            table = file.read_row_group(
                group - int(self._first_groups[number]), [self._column], use_threads=False
            )
        return table.column(0)

    def __getstate__(self) -> dict[str, Any]:
        """For processes that are not forked: what is in memory here they read for themselves."""
        fleeting = ("_lock", "_groups", "_footers")
        return {name: value for name, value in vars(self).items() if name not in fleeting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()
