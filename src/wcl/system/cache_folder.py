"""The folder for files that belong to no run."""

import os
import sys
from pathlib import Path

from wcl.system.errors import InputError


def cache_folder() -> Path:
    """Return WCL_CACHE, or the folder `wcl` in the user's cache folder of this platform.

    Raises:
        InputError: there is no home folder.
    """
    if configured := os.environ.get("WCL_CACHE"):
        return Path(configured).absolute()
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    # The XDG specification says to ignore relative paths.
    if (folder := Path(os.environ.get(variable, ""))).is_absolute():
        return folder / "wcl"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise InputError("there is no home folder to cache files in; set WCL_CACHE") from error
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "wcl"
