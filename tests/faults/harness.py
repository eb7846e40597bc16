"""Kill a run again and again and go on with it: `python harness.py FOLDER SEED KILLS [RUN …]`.

It ends with status 0 if every run ended as the undisturbed one did, bit for bit, and left no
process behind; what was killed where is in the table that it prints. torch is imported once: every
start of a run is a fork of this process, which computes nothing itself.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from injection import KINDS, PLACES, SIGNALS, Fault, arm, count_lines

from images import photo_folder
from runs import assert_same_run, metrics
from wcl.cli import main as wcl_command

HERE = Path(__file__).parent
MOMENT = "at any moment"
KILLS_OF_A_RUN = 16  # then it is let alone, and the next one begins
SECONDS_TO_END = 120
TINY = [
    "--threads=1",
    "--epochs=3",
    "--model.head_hidden_dim=32",
    "--model.head_out_dim=16",
    "--log.every=1",
    "--log.tensorboard=false",
    "--crops.count=2",
    "--crops.size=16",
    "--crops.scale=[0.3,0.6]",
    "--crops.warmup=1",
    "--crops.neighbors=true",
    "--timeout_minutes=1",
]
RUNS = {
    "digits": ["digits", "--limit=128", "--batch_size=32"],
    "photos": [
        "folder",
        "--data=photos",
        "--batch_size=8",
        "--image_size=32",
        "--num_workers=1",
        "--model.backbone=resnet_small",
        "--model.stem=stride2",
    ],
    "two processes": ["digits", "--limit=128", "--batch_size=32", "--devices=2"],
}


@dataclass
class Ending:
    """How a start of a run ended."""

    status: int
    """As a shell's; less than 0 for a signal."""
    said: str
    seconds: float
    where: str = ""
    """The line at which the fault happened; empty if it ended before."""


class Harness:
    """Runs in a folder, one after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = np.random.default_rng(seed)
        self.kills: Counter[tuple[str, str]] = Counter()
        """By place and kind."""
        self.endings: Counter[tuple[str, int]] = Counter()
        """By kind and status."""
        self.lines: dict[str, int] = {}
        photo_folder(folder / "photos")
        os.chdir(folder)
        # Processes that outlive who started them become children of this one.
        if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0):
            raise OSError("PR_SET_CHILD_SUBREAPER")

    def start(
        self, words: list[str], fault: Fault | None = None, moment: float = 0, rank: int = 0
    ) -> Ending:
        """The command `wcl` in a process of its own, with a fault in it or in one that it starts.

        `moment` is when a fault strikes that is not bound to a line.
        """
        said, where = self.folder / "said", self.folder / "where"
        where.unlink(missing_ok=True)
        began = time.monotonic()
        process = os.fork()
        if process == 0:
            with said.open("w") as file:
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
            _be_wcl(words, fault, rank, where)
        if moment and fault is not None:
            time.sleep(moment)
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                os.kill(process, getattr(signal, fault.kind))
                where.write_text("a moment")
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        ending = Ending(status, said.read_text(), time.monotonic() - began)
        if where.exists() and not (moment and status == 0):  # or it came too late
            ending.where = where.read_text()
        return ending

    def undisturbed(self, name: str) -> tuple[Path, float]:
        """A whole run, and how long it took.

        It counts the lines in every place, and says which modules the others will need.
        """
        out = self.folder / f"{name} undisturbed"
        ending = self.start(_command(name, out))
        assert ending.status == 0, ending.said
        told = json.loads((self.folder / "told").read_text())
        self.lines = told["lines"]
        for module in told["modules"]:
            with suppress(Exception):
                importlib.import_module(module)
        return out, ending.seconds

    def fault(self) -> Fault:
        """One of any kind anywhere."""
        place = str(self.random.choice([*PLACES, MOMENT]))
        kinds = SIGNALS if place == MOMENT else KINDS
        kind = str(self.random.choice([*kinds, "SIGKILL", "SIGKILL"]))  # the harshest more often
        # Rather soon than late, so that a run is killed several times before it ends.
        line = 1 + int(self.lines.get(place, 0) * self.random.random() ** 2)
        return Fault(kind, place, line)

    def disturbed(self, name: str, out: Path, seconds: float, kills: int) -> int:
        """A run that is killed up to so many times and goes on until it ends; how often it was."""
        command, killed = _command(name, out), 0
        while True:
            resume = ["--resume"] if (out / "config.yaml").exists() else []
            fault = self.fault() if killed < kills else None
            moment = 0.0
            if fault is not None and fault.place == MOMENT:
                moment = float(self.random.uniform(0.05, seconds / 3))
            rank = int(self.random.integers(2)) if "--devices=2" in command and not moment else 0
            ending = self.start([*command, *resume], fault, moment, rank)
            if fault is not None and ending.where:
                killed += 1
                self.kills[fault.place, fault.kind] += 1
                self.endings[fault.kind, ending.status] += 1
                _check(fault, ending, rank)
            if ending.status == 0:
                return killed
            assert fault is not None and ending.where, ending.said

    def all_end(self) -> None:
        """Every process that was started has ended, or does so soon."""
        until = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < until:
            try:
                process, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                time.sleep(0.1)
        raise AssertionError("a process was left behind")


def _be_wcl(words: list[str], fault: Fault | None, rank: int, where: Path) -> NoReturn:
    """The rest of this process is that command."""
    sys.argv = ["wcl", *words]
    if fault is None:
        lines: Counter[str] = Counter()
        count_lines(lines)
        try:
            wcl_command()
        finally:
            sys.settrace(None)
            Path("told").write_text(json.dumps({"lines": lines, "modules": list(sys.modules)}))
    elif rank:
        path = os.pathsep.join([str(HERE / "in_others"), os.environ.get("PYTHONPATH", "")])
        told = {"FAULT": str(fault), "FAULT_RANK": str(rank), "FAULT_SAID": str(where)}
        os.environ.update(told, PYTHONPATH=path)
    elif fault.place != MOMENT:
        arm(fault, where)
    wcl_command()


def _command(name: str, out: Path) -> list[str]:
    return ["pretrain", *RUNS[name], *TINY, f"--out={out}"]


def _check(fault: Fault, ending: Ending, rank: int) -> None:
    """What the command may say of a fault, and how it may end."""
    if fault.kind != "exception":
        assert "Traceback" not in ending.said, (fault, ending)
    if rank == 0 and fault.kind == "SIGKILL":
        assert ending.status == -signal.SIGKILL, (fault, ending)


def kill_again_and_again(folder: Path, seed: int, kills: int, names: list[str]) -> None:
    harness = Harness(folder, seed)
    for name in names:
        whole, seconds = harness.undisturbed(name)
        steps = [line["step"] for line in metrics(whole) if line["kind"] == "step"]
        assert steps == list(range(1, len(steps) + 1))
        killed = runs = 0
        while killed < kills:
            out = folder / f"{name} {runs}"
            killed += harness.disturbed(name, out, seconds, min(KILLS_OF_A_RUN, kills - killed))
            assert_same_run(whole, out)
            runs += 1
        harness.all_end()
        print(f"{name}: killed {killed} times in {runs} runs, which all ended the same", flush=True)
    _show(harness)


def _show(harness: Harness) -> None:
    print(f"{'':24}" + "".join(f"{kind:>14}" for kind in KINDS))
    for place in [*PLACES, MOMENT]:
        row = [harness.kills[place, kind] for kind in KINDS]
        print(f"{place:24}" + "".join(f"{count:14}" for count in row))
    print("endings: ", end="")
    told = sorted(harness.endings.items())
    print(", ".join(f"{kind} → {status}: {count}" for (kind, status), count in told))


if __name__ == "__main__":
    chosen = sys.argv[4:] or list(RUNS)
    kill_again_and_again(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), chosen)
