"""Standard output and error as the command has them: writing there never fails.

Work of days does not end because nobody can read what it says, nor does a command that failed look
like one that did not. Whether the result could be told is asked once, at the end.
"""

import io
import os
from pathlib import Path
from typing import Any, TextIO


class StandardStream(io.TextIOWrapper):
    """Takes the place of sys.stdout or sys.stderr, and keeps what went wrong instead of raising."""

    def __init__(self, stream: TextIO | None) -> None:
        if stream is None:  # closed by whoever started us
            stream = Path(os.devnull).open("w")  # noqa: SIM115
        self._original = stream  # which closes the file when nobody has it any more
        self._file = _File(stream.fileno(), "w", closefd=False)
        super().__init__(
            io.BufferedWriter(self._file),
            encoding=stream.encoding,
            errors="replace",  # for terminals without × or ≥
            line_buffering=bool(stream.line_buffering) or getattr(stream, "write_through", False),
        )

    @property
    def failure(self) -> OSError | None:
        """Why something that was written did not arrive."""
        self.flush()
        return self._file.failure


class _File(io.FileIO):
    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            return memoryview(data).nbytes  # as if written: what is left would be tried at the exit
