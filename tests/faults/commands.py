"""The command `wcl pretrain` as a user starts it, in a process of its own."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

DIGITS = [
    "digits",
    "--limit=128",
    "--batch_size=32",
    "--model.head_hidden_dim=32",
    "--model.head_out_dim=16",
    "--threads=1",
    "--log.every=1",
    "--log.tensorboard=false",
]
PHOTOS = [
    "folder",
    "--batch_size=8",
    "--image_size=32",
    "--num_workers=1",
    "--model.backbone=resnet_small",
    "--threads=1",
    "--model.stem=stride2",
    "--model.head_hidden_dim=32",
    "--model.head_out_dim=16",
    "--log.every=1",
    "--crops.count=0",
    "--log.tensorboard=false",
]


def start(words: list[str], **environment: str) -> subprocess.Popen[str]:
    """In a group of its own, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "wcl", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status, and all that it said on stderr."""
    _, said = process.communicate(timeout=240)
    return process.returncode, said


def wait_for_lines(run: Path, more_than: int = 0, seconds: float = 180) -> None:
    """Until there are more lines of metrics.jsonl than so many."""
    until = time.monotonic() + seconds
    while lines_of(run) <= more_than:
        assert time.monotonic() < until, "no step was taken"
        time.sleep(0.02)


def lines_of(run: Path) -> int:
    file = run / "metrics.jsonl"
    return len(file.read_bytes().splitlines()) if file.exists() else 0


def children(process: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            found.extend(map(int, (task / "children").read_text().split()))
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
