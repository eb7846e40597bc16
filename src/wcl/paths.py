"""Paths as people write them."""

import os
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """The path with ~ for the home folder resolved, where it can be."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for a strange ~
