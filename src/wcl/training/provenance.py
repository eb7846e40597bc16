"""How a run was made: RUN/provenance.json, a list of the sittings in which it was trained.

A run that is stopped and resumed has several. Nothing that is computed depends on them. They have
neither the user's name nor the machine's, and no path but those that were typed.
"""

import json
import os
import platform
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path

from wcl import __version__
from wcl.system.files import atomic_write

_PACKAGES = ("torch", "torchvision", "timm", "lightning-fabric", "scikit-learn", "numpy", "pillow")


@dataclass(frozen=True)
class Session:
    """From a start of a run until it ended or was stopped."""

    began: str
    """The time in UTC."""
    step: int
    """How many steps had been taken before."""
    recipe: str
    """Its name; empty if there was none, as on resuming."""
    config: str
    """Name of the file of settings that was given; empty if none was."""
    command: str
    """As it was typed, with ~ for the home folder; empty if another program made the run."""
    versions: dict[str, str]
    machine: dict[str, str]


def current_session(recipe: str, step: int, device: str, processes: int) -> Session:
    """What is known at the start of a run, or when it goes on."""
    words = _words()
    config = [value for name, value in pairwise(words) if name == "--config"]
    config += [word.partition("=")[2] for word in words if word.startswith("--config=")]
    machine = hardware() | {"device": device}
    if processes > 1:
        machine["processes"] = str(processes)
    return Session(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        step=step,
        recipe=recipe,
        config=Path(config[-1]).name if config else "",
        command=typed(*words),
        versions=versions(),
        machine=machine,
    )


def add_session(path: Path, session: Session, resumed: bool) -> None:
    """Write it down, behind those before if the run goes on."""
    sessions = [*(read_sessions(path) if resumed else []), session]
    with atomic_write(path) as unfinished:
        unfinished.write_text(
            json.dumps([asdict(one) for one in sessions], indent=1) + "\n", encoding="utf-8"
        )


def read_sessions(path: Path) -> list[Session]:
    """Those that are written down there; none if there is no such file, or a damaged one."""
    damaged = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
    try:
        return [
            Session(
                began=str(found["began"]),
                step=int(found["step"]),
                recipe=str(found["recipe"]),
                config=str(found["config"]),
                command=str(found["command"]),
                versions={str(name): str(value) for name, value in found["versions"].items()},
                machine={str(name): str(value) for name, value in found["machine"].items()},
            )
            for found in json.loads(path.read_text(encoding="utf-8"))
        ]
    except (OSError, *damaged):
        return []


def versions() -> dict[str, str]:
    """Of this package, of Python and of what the figures depend on."""
    found = {"wcl": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, str]:
    """The machine at hand."""
    from wcl.system.machine import cores

    system = f"{platform.system()} {platform.machine()}"
    return {"system": system, "processor": _processor(), "cores": str(cores())}


def typed(*words: str) -> str:
    """A command line; ~ is left for the shell, which expands it only where it is not quoted."""
    return " ".join(
        f"~{shlex.quote(w[1:])}" if w.startswith("~/") else shlex.quote(w) for w in words
    )


def _words() -> list[str]:
    """Of the `wcl` command that this process is; none in another program."""
    program = Path(sys.argv[0])
    if program.name != "wcl" and program.parts[-2:] != ("wcl", "__main__.py"):
        return []
    home = re.escape(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises without a home
    readable = (os.fsencode(word).decode(errors="replace") for word in sys.argv[1:])
    return ["wcl", *(re.sub(rf"(^|[=,]){home}(?=/|$)", r"\1~", word) for word in readable)]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
