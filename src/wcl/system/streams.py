"""Standard output and error as the command has them: writing there never fails.

Work of days does not end because nobody can read what it says, nor does a command that failed look
like one that did not. Whether the result could be told is asked once, at the end.
"""

import io
import os
from pathlib import Path
from typing import TextIO

_STANDARD_ERROR = 2


def leave_no_standard_file_closed() -> None:
    """Open those of the files 0, 1 and 2 that whoever started us closed.

    Otherwise another file would get the number, and what is written to standard error with it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(number)


class StandardStream(io.TextIOWrapper):
    """Takes the place of sys.stdout or sys.stderr, and keeps what went wrong instead of raising."""

    def __init__(self, stream: TextIO | None) -> None:
        if stream is None:  # closed by whoever started us
            stream = Path(os.devnull).open("w")  # noqa: SIM115
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
        """Why something that was written did not arrive."""
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
        os.dup2(nowhere, self.fileno())  # where what waits to be written goes, now or at the exit
        os.close(nowhere)
