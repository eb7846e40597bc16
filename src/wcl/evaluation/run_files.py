"""Files that evaluations leave in the folder of a run, which may be read-only."""

from pathlib import Path

from wcl.system.files import atomic_write, clear_unfinished
from wcl.system.progress import log


def write_if_possible(path: Path, content: bytes, failure: str) -> bool:
    """Write a file and return whether that worked.

    A failure does not end the evaluation: `failure` is reported, with the reason.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        clear_unfinished(path.parent)
        with atomic_write(path) as unfinished:
            unfinished.write_bytes(content)
    except OSError as error:
        log(f"{failure} ({error.strerror})")
        return False
    return True
