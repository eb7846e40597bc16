"""Runs of several real processes against runs of one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from runs import CROPS, checkpoint, metrics, weights
from wcl.distributed.launch import restarted
from wcl.system.errors import InputError

# Double precision; the pixels themselves are single, which is what the tolerance is for.
RELATIVE, ABSOLUTE = 1e-5, 1e-6
SETTINGS = {
    "limit": 128,
    "batch_size": 32,
    "epochs": 3,
    "precision": "64-true",
    "threads": 1,
    "timeout_minutes": 1,
    "model.head_hidden_dim": 32,
    "model.head_out_dim": 16,
    "log.every": 2,
    "log.tensorboard": "false",
    "crops.count": CROPS["count"],
    "crops.size": CROPS["size"],
    "crops.scale": str(CROPS["scale"]),
    "crops.warmup": 1,
}


def words(out: Path, **changes: Any) -> list[str]:
    given = {"out": out, **SETTINGS, **{k.replace("__", "."): v for k, v in changes.items()}}
    return ["pretrain", "digits", *(f"--{name}={value}" for name, value in given.items())]


def wcl(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "wcl", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def finish(*started: subprocess.Popen[str]) -> list[tuple[int, str]]:
    """Exit status and last line of each."""
    found = []
    for process in started:
        _, said = process.communicate(timeout=240)
        print(said)  # shown if the test fails
        found.append((process.returncode, said.strip().splitlines()[-1] if said.strip() else ""))
    return found


def assert_alike(one: Path, other: Path) -> None:
    """The same weights, labels, neighbors and metrics, but for the order of additions."""
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=RELATIVE, atol=ABSOLUTE)
    here, there = checkpoint(one)["neighbor_crops"], checkpoint(other)["neighbor_crops"]
    assert torch.equal(here["table"], there["table"])
    torch.testing.assert_close(here["features"], there["features"], rtol=0, atol=1e-3)
    lines, others = metrics(one), metrics(other)
    assert len(lines) == len(others)
    for line, same in zip(lines, others, strict=True):
        assert line.keys() == same.keys()
        exact = ("kind", "step", "epoch", "components", "largest_component", "agreement", "purity")
        assert [line[n] for n in exact if n in line] == [same[n] for n in exact if n in same]
        assert line["loss"] == pytest.approx(same["loss"], rel=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    assert finish(wcl(words(out)))[0][0] == 0
    return out


def test_two_processes_make_the_run_of_one(alone: Path, tmp_path: Path) -> None:
    assert finish(wcl(words(tmp_path / "run", devices=2)))[0][0] == 0
    assert_alike(alone, tmp_path / "run")


def test_two_processes_find_neighbors_in_plain_images_as_one_does(tmp_path: Path) -> None:
    runs = {1: tmp_path / "one", 2: tmp_path / "two"}
    for devices, out in runs.items():
        crops = {"crops__features": "plain", "crops__bank": ("memory", "disk")[devices - 1]}
        assert finish(wcl(words(out, devices=devices, **crops)))[0][0] == 0
    assert_alike(runs[1], runs[2])


def test_a_run_goes_on_with_another_number_of_processes(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = wcl(words(out, devices=2))
    wait_for(out / "metrics.jsonl", 1)
    started.send_signal(signal.SIGTERM)
    (status, said), *_ = finish(started)
    assert (status, "--resume" in said) == (130, True)
    assert finish(wcl(["pretrain", "--out", str(out), "--resume", "--devices", "1"]))[0][0] == 0
    assert_alike(alone, out)


def test_torchrun_goes_on_by_itself_after_a_process_was_killed(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--standalone", "--max-restarts=2", "-m", "wcl", *words(out)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(out / "checkpoints" / "last.ckpt")
    os.kill(worker(started.pid, "1"), signal.SIGKILL)
    assert finish(started)[0][0] == 0
    assert_alike(alone, out)


def test_an_environment_that_makes_no_sense_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "x")
    with pytest.raises(InputError, match="TORCHELASTIC_RESTART_COUNT: 'x' in the environment"):
        restarted()


def worker(launcher: int, rank: str) -> int:
    """The process of that rank among those that a launcher started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and f"RANK={rank}".encode() in environment:
            return int(entry.name)
    raise AssertionError("no such process")


def wait_for(path: Path, lines: int = 0, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not path.exists() or len(path.read_bytes().splitlines()) < lines:
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.05)


@pytest.fixture
def two_nodes() -> Iterator[list[str]]:
    """Two network namespaces with a cable between: 10.99.0.1 and 10.99.0.2."""
    names = [f"wcl-{os.getpid()}-{node}" for node in (1, 2)]
    cable = [f"v{os.getpid()}x{node}" for node in (1, 2)]

    def ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"two nodes need the right to make network namespaces: {done.stderr}")

    if shutil.which("ip") is None:
        pytest.skip("two nodes need the command `ip` (iproute2)")
    try:
        for name in names:
            ip("netns", "add", name)
        ends = [f"{cable[0]} netns {names[0]}", f"peer name {cable[1]} netns {names[1]}"]
        ip("link", "add", *ends[0].split(), "type", "veth", *ends[1].split())
        for number, (name, end) in enumerate(zip(names, cable, strict=True), 1):
            ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        pairs = zip(names, cable, strict=True)
        yield [f"ip netns exec {name} env GLOO_SOCKET_IFNAME={end}" for name, end in pairs]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_two_nodes_make_the_run_of_one(alone: Path, two_nodes: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = []
    for number, node in enumerate(two_nodes):
        command = [*node.split(), sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
        command += ["--nproc-per-node=1", f"--node-rank={number}", "--master-addr=10.99.0.1"]
        command += ["--master-port=29511", "-m", "wcl", *words(out)]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    assert [status for status, _ in finish(*started)] == [0, 0]
    assert_alike(alone, out)


def test_a_process_that_dies_ends_the_run_with_one_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = wcl(words(out, devices=2, epochs=500))
    wait_for(out / "metrics.jsonl", 1)
    os.kill(worker(started.pid, "1"), signal.SIGKILL)
    (status, said), *_ = finish(started)
    assert status == 1
    assert "process 1 ended with status -9" in said and "--resume" in said


def test_a_process_that_hangs_ends_the_run_in_time(tmp_path: Path) -> None:
    out = tmp_path / "run"
    started = wcl(words(out, devices=2, epochs=500, timeout_minutes=0.3))
    wait_for(out / "metrics.jsonl", 1)
    os.kill(worker(started.pid, "1"), signal.SIGSTOP)
    (status, said), *_ = finish(started)
    assert status == 1
    assert "did not answer within 0.3 minutes" in said


def test_processes_that_were_started_differently_are_told_so(tmp_path: Path) -> None:
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "test"}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29400 + os.getpid() % 1000)}
    given = words(tmp_path / "run")
    first = wcl(given, RANK="0", LOCAL_RANK="0", **place)
    second = wcl([*given, "--optim.lr=0.5"], RANK="1", LOCAL_RANK="1", **place)
    (status, said), other = finish(first, second)
    assert status == 2
    assert "optim.lr: " in said and "0.5 on process 1" in said
    assert other == (2, "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": 3}, "--batch_size: 32 images do not divide by 3 processes; use 30 or 33"),
        (
            {"micro_batch_size": 5},
            "--micro_batch_size: a batch of 32 images does not divide into pieces of 5",
        ),
        (
            {"devices": 4, "micro_batch_size": 2},
            "--micro_batch_size: 2 images do not divide by 4 processes",
        ),
        ({"devices": 0}, "--devices: must be between 1 and"),
        ({"timeout_minutes": 0}, "--timeout_minutes: must be more than 0"),
    ],
)
def test_settings_that_cannot_be_shared_out_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from wcl.cli import run_command

    assert run_command(words(tmp_path / "run", **changes)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_another_global_batch_cannot_go_on_with_a_run(
    alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from wcl.cli import run_command

    assert run_command(["pretrain", "--out", str(alone), "--resume", "--batch_size=64"]) == 2
    assert "batch_size=32, not 64" in capsys.readouterr().err
