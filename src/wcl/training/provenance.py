"""The provenance of a run: provenance.json, one entry per start or resume.

A run that is stopped and resumed has several sessions. No result depends on them. They contain
neither the user's nor the machine's name, and no paths except those on the command line.
"""

import json
import os
import platform
import re
import shlex
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path

from wcl import __version__
from wcl.system.credentials import without_credentials
from wcl.system.files import atomic_write

_PACKAGES = ("torch", "torchvision", "timm", "lightning-fabric", "scikit-learn", "numpy", "pillow")


@dataclass(frozen=True)
class Session:
    """One session of training, from a start until the run ended or was stopped."""

    began: str
    """The time in UTC."""
    step: int
    """Number of steps done before."""
    recipe: str
    """Name of the recipe; empty without one, as on resuming."""
    config: str
    """Name of the settings file; empty without one."""
    command: str
    """The command line, with ~ for the home folder; empty if another program started the run."""
    versions: dict[str, str]
    machine: dict[str, str]
    weights: dict[str, str] = field(default_factory=dict)
    """Name and SHA-256 of the weights that the run started from; empty for random ones."""
    extension: str = ""
    """How the run was extended or shortened from here on; empty if it was not."""


def current_session(
    recipe: str,
    step: int,
    device: str,
    processes: int,
    weights: dict[str, str] | None = None,
    extension: str = "",
    resizer: str = "",
) -> Session:
    """Return the entry of a run that starts or resumes now."""
    arguments = _command_line()
    config = [value for name, value in pairwise(arguments) if name == "--config"]
    config += [word.partition("=")[2] for word in arguments if word.startswith("--config=")]
    machine = hardware() | {"device": device}
    if processes > 1:
        machine["processes"] = str(processes)
    if resizer:
        machine["resize"] = resizer
    return Session(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        step=step,
        recipe=recipe,
        config=Path(config[-1]).name if config else "",
        command=shell_command(*arguments),
        versions=versions(),
        machine=machine,
        weights=weights or {},
        extension=extension,
    )


def add_session(path: Path, session: Session, resumed: bool) -> None:
    """Append a session to the file, or start the file anew unless the run is resumed."""
    sessions = [*(read_sessions(path) if resumed else []), session]
    with atomic_write(path) as unfinished:
        unfinished.write_text(
            json.dumps([asdict(one) for one in sessions], indent=1) + "\n", encoding="utf-8"
        )


def read_sessions(path: Path) -> list[Session]:
    """Return the entries of the file; none if it is missing or damaged."""
    try:
        return [Session(**values) for values in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def resizer_before(path: Path) -> str:
    """Return what resized photos in the last session of the file; empty if it has none.

    Versions that did not record it used PIL.
    """
    sessions = read_sessions(path)
    return sessions[-1].machine.get("resize", "PIL") if sessions else ""


def versions() -> dict[str, str]:
    """Return the versions of wcl, Python and the packages that results depend on."""
    packages = {"wcl": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return packages


def hardware() -> dict[str, str]:
    """Describe this machine."""
    from wcl.system.machine import cores

    system = f"{platform.system()} {platform.machine()}"
    return {"system": system, "processor": _processor(), "cores": str(cores())}


def shell_command(*words: str) -> str:
    """Quote a command line for the shell; a leading ~ stays unquoted, so the shell expands it."""
    return " ".join(
        f"~{shlex.quote(w[1:])}" if w.startswith("~/") else shlex.quote(w) for w in words
    )


def _command_line() -> list[str]:
    """Return the `wcl` command that this process runs; empty in another program."""
    program = Path(sys.argv[0])
    if program.name != "wcl" and program.parts[-2:] != ("wcl", "__main__.py"):
        return []
    home = re.escape(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises without a home
    words = (os.fsencode(word).decode(errors="replace") for word in sys.argv[1:])
    readable = map(without_credentials, words)
    return ["wcl", *(re.sub(rf"(^|[=,]){home}(?=/|$)", r"\1~", word) for word in readable)]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
