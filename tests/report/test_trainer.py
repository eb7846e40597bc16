"""The process that trains a run: found by its lock, stopped only if it is the right one."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from wcl.report.trainer import ask_to_stop, trainer
from wcl.system.errors import RunError
from wcl.system.run_folder import RunFolder


def test_a_stale_process_id_is_not_used(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        try:
            RunFolder(tmp_path).trainer.write_text(f"{innocent.pid} {os.uname().nodename}\n")
            with pytest.raises(RunError, match="not training"):
                ask_to_stop(tmp_path)
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_a_run_on_another_machine_is_not_stopped_from_here(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked():
        RunFolder(tmp_path).trainer.write_text(f"{os.getpid()} elsewhere\n")
        assert trainer(tmp_path) == (True, None)
        with pytest.raises(RunError, match="stop it there"):
            ask_to_stop(tmp_path)


def test_a_run_in_a_thread_of_another_program_is_not_stopped(tmp_path: Path) -> None:
    found = []

    def train() -> None:
        with RunFolder(tmp_path).locked():
            found.append(trainer(tmp_path))

    with RunFolder(tmp_path).locked():  # by the main thread, whose number stays behind
        assert trainer(tmp_path) == (True, os.getpid())
    thread = Thread(target=train)
    thread.start()
    thread.join()
    assert found == [(True, None)]


def test_looking_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    RunFolder(tmp_path).lock.touch()
    code = (
        "import sys; from pathlib import Path; from wcl.report.trainer import trainer\n"
        "print('looking', flush=True)\n"
        "while True: trainer(Path(sys.argv[1]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE
    ) as looking:
        try:
            assert looking.stdout is not None and looking.stdout.readline()
            for _ in range(50):
                with RunFolder(tmp_path).locked():
                    pass
        finally:
            looking.send_signal(signal.SIGKILL)
