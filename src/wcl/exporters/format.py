"""What every export format provides."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from wcl.exporters.traced import ExportedEncoder
from wcl.models.description import Description
from wcl.models.encoder import Encoder


class Format(NamedTuple):
    """How an encoder is written in one format, and how the file is used."""

    name: str
    """Default name of the file or folder in RUN/export."""
    write: Callable[[Encoder, Path], None]
    usage: Callable[[Description, Path], list[str]]
    """Return Python that opens the file without wcl and runs as it is, line by line."""
    read: Callable[[Path, str], ExportedEncoder] | None = None
    """Open the file on a device; None where `wcl.models.encoder.load` opens it."""
