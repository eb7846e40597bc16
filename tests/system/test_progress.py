"""What people see while they wait: bars in a terminal, lines in a log, and no litter in either."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runs import CROPS, tiny_run
from wcl.system import progress
from wcl.system.progress import track

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_a_log_gets_lines_that_say_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_FIRST_LINE", 0.0)
    monkeypatch.setattr(progress, "_BETWEEN_LINES", 0.0)
    assert list(track("abcd", "reading")) == list("abcd")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"reading: {n}%" for n in (25, 50, 75)]
    assert all(line.endswith(" left") for line in lines)
    assert list(track(iter("ab"), "reading")) == list("ab")
    assert capsys.readouterr().err.splitlines() == ["reading: 1 so far", "reading: 2 so far"]
    assert list(track(iter("abcd"), "reading", 4)) == list("abcd")
    assert capsys.readouterr().err.startswith("reading: 25%")


def test_a_log_gets_its_first_line_after_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for _ in track(range(20), "reading"):
        now[0] += 0.5
    assert capsys.readouterr().err == "reading: 20%, about 8 seconds left\n"


def test_what_is_over_in_a_moment_leaves_nothing_in_a_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(track(range(1000), "counting")) == list(range(1000))
    assert capsys.readouterr().err == ""


def test_the_lines_of_an_epoch_are_short_and_none_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_run(tmp_path / "run", crops=CROPS, log={"every": 2, "tensorboard": False, "knn_every": 1})
    lines = capsys.readouterr().err.splitlines()
    assert all(line.strip() for line in lines)
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert epochs and all(len(line) <= 120 for line in epochs)
    for word in ("loss", "rankme", "components", "pure", "neighbors pure", "k-NN", "images/s"):
        assert f"  {word} " in epochs[-1] or epochs[-1].endswith(word)


def test_the_bar_of_a_run_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "wcl", "pretrain", "digits", "--out", str(tmp_path / "run")]
    words += ["--limit", "128", "--batch_size", "32", "--epochs", "20", "--log.every", "1"]
    ours, theirs = pty.openpty()
    plain = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stderr=theirs, stdout=subprocess.DEVNULL, env=plain) as run:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 2**16):
                said += part
        except OSError:  # the other end is closed: Linux says it so
            pass
    os.close(ours)
    assert run.returncode == 0
    drawn = re.split(r"[\r\n]+", _ESCAPES.sub("", said.decode()))
    bars = [line for line in drawn if line.startswith("epoch ") and " left " in line]
    assert any(re.search(r"━ loss .* images/s  waiting \d+%  left \d+:\d\d:\d\d", b) for b in bars)
    assert all(len(line) <= 80 and "…" not in line for line in bars)
