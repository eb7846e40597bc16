"""Stopping by signals: when nothing is lost, and when Python cannot handle them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import DIGITS, finish

from runs import checkpoint, prepared, tiny_run
from wcl.distributed.world import World
from wcl.training.stop import StopRequest, stop_on_signals

# A step that waits within the C library for a lock that nobody opens; signals do not end that.
STUCK = """
import ctypes
from pathlib import Path

from wcl.methods.simclr import SimCLR

class Stuck(SimCLR):
    def loss(self, out, targets, shard):
        if Path("run").exists() != WITHIN_RUN:
            return super().loss(out, targets, shard)
        Path("in the step").touch()
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the lock is that of Linux")
@pytest.mark.parametrize("within_run", [False, True])
def test_a_first_step_that_does_not_end_is_ended_by_sigterm(
    within_run: bool, tmp_path: Path
) -> None:
    """The first step of all is the one that estimates memory and time, before there is a run."""
    (tmp_path / "stuck.py").write_text(f"WITHIN_RUN = {within_run}{STUCK}")
    command = [sys.executable, "-m", "wcl", "pretrain", *DIGITS, "--method=stuck:Stuck"]
    process = subprocess.Popen(
        [*command, "--out=run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 240
    while not (tmp_path / "in the step").exists():
        assert process.poll() is None and time.monotonic() < until, "no step was taken"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    status, said = finish(process)
    assert status == 130
    assert "did not end in time" in said
    assert ("wcl pretrain --out run --resume" in said) == within_run
    assert (tmp_path / "run").exists() == within_run
    # The folder can be used again.
    assert tiny_run(tmp_path / "run", epochs=1).is_dir()


def test_a_stop_in_the_last_step_ends_the_command_that_the_run_is_part_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wcl.apps import pretrain

    config = prepared(tmp_path / "run", epochs=1).config
    monkeypatch.setattr(
        StopRequest, "__bool__", lambda self: (tmp_path / "run/encoder.safetensors").exists()
    )
    with pytest.raises(KeyboardInterrupt):
        pretrain.run(config, quiet=True)
    assert checkpoint(tmp_path / "run")["step"] == 4  # finished, and saved


@pytest.mark.skipif(sys.platform == "win32", reason="a signal to itself ends the process there")
def test_a_signal_stops_at_once_unless_there_is_something_to_save() -> None:
    def send(number: int) -> None:
        os.kill(os.getpid(), number)

    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(World()) as stop, pytest.raises(KeyboardInterrupt):
        send(signal.SIGTERM)
    with stop_on_signals(World()) as stop:
        stop.unsaved = True
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert stop
        with stop.deferred():
            send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before
