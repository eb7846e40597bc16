"""Standard output and error to which writing never fails.

A run of days must not end because nobody reads its messages. Whether the result could be written
is checked once, at the end of the command.
"""

import io
import os
from pathlib import Path
from typing import TextIO

_STANDARD_ERROR = 2


def open_standard_files() -> None:
    """Open the standard streams that were closed when the process started.

    Otherwise the next file to be opened would get the number of standard error, and its messages.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(number)


class StandardStream(io.TextIOWrapper):
    """Replacement for sys.stdout or sys.stderr that records errors instead of raising them."""

    def __init__(self, stream: TextIO | None) -> None:
        if stream is None:  # it was closed
            stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        assert isinstance(stream, io.TextIOWrapper)
        lines, through = stream.line_buffering, stream.write_through
        super().__init__(
            stream.detach(),
            encoding=stream.encoding,
            errors="replace",  # for terminals without × or ≥
            line_buffering=lines,
            write_through=through,
        )
        self._failure: OSError | None = None

    @property
    def failure(self) -> OSError | None:
        """The first error of writing, if any."""
        self.flush()
        return self._failure

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._failure = self._failure or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # for what is still buffered
        os.close(nowhere)
