"""`wcl watch`: the state of a run, and a stop button that only the run's own page can use."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from report_pages import write_evaluation
from runs import tiny_run
from wcl.cli import run_command
from wcl.report.trainer import trainer
from wcl.report.watch import WatchServer, open_server

_TRAINS = """
import signal, sys
from wcl.system.run_folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("training", flush=True)
    signal.pause()
"""


class Answer(NamedTuple):
    status: int
    content: bytes
    headers: dict[str, str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture
def server(run: Path) -> Iterator[WatchServer]:
    with open_server(str(run), 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: WatchServer, method: str, path: str, **headers: str) -> Answer:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{server.server_port}", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    return Answer(answer.status, answer.read(), dict(answer.getheaders()))


def test_only_the_printed_address_is_answered(server: WatchServer) -> None:
    token = server.token
    page = ask(server, "GET", f"/?token={token}")
    assert page.status == 200 and b"Is it healthy?" in page.content
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    for path in ("/", "/?token=", "/?token=guess", "/state", "/neighbors"):
        refused = ask(server, "GET", path)
        assert refused.status == 403 and token.encode() not in refused.content
    assert ask(server, "GET", "/../config.yaml", X_WCL_Token=token).status == 404
    assert ask(server, "GET", "/neighbors", X_WCL_Token=token).status == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_invalid_addresses_are_refused_silently(
    server: WatchServer, method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ask(server, method, "http://[/stop", Origin="http://[").status == 403
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:1", ""])
def test_requests_for_other_hosts_are_refused(server: WatchServer, host: str) -> None:
    assert ask(server, "GET", f"/?token={server.token}", Host=host).status == 403


def test_it_listens_to_this_machine_alone(server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_lines_that_are_written_meanwhile_are_seen(server: WatchServer, run: Path) -> None:
    def look() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            ask(server, "GET", "/state", X_WCL_Token=server.token).content
        )
        return found

    before, content = look(), (run / "metrics.jsonl").read_text()
    try:
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"kind": "step", "step": 9, "epoch": 3, "loss": 1.5}\n')
        after = look()
    finally:
        (run / "metrics.jsonl").write_text(content)
    assert after["version"] != before["version"]
    loss = next(chart for chart in after["charts"] if chart["name"] == "loss")
    assert loss["dots"][0][1][-1] == 1.5


def test_a_run_that_was_not_evaluated_says_how_to(server: WatchServer, run: Path) -> None:
    def page() -> str:
        return ask(server, "GET", f"/?token={server.token}").content.decode()

    remedy = f"<code>wcl eval all {run} --data digits</code> evaluates the run"
    assert remedy in page()
    try:
        write_evaluation(run, {"encoder": 0.875})
        assert remedy not in page() and "87.5%" in page()
    finally:
        (run / "evaluation.json").unlink()


def test_only_its_own_page_stops_a_run(server: WatchServer, run: Path) -> None:
    token, own = server.token, f"http://127.0.0.1:{server.server_port}"
    with subprocess.Popen(
        [sys.executable, "-c", _TRAINS, str(run)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "training\n"
            assert trainer(run) == (True, process.pid)
            forged: list[dict[str, str]] = [
                {"X_WCL_Token": token},
                {"X_WCL_Token": token, "Origin": "http://evil.example"},
                {"X_WCL_Token": token, "Origin": "null"},
                {"X_WCL_Token": token, "Origin": "http://["},
                {"X_WCL_Token": token, "Origin": "http://localhost:1"},
                {"X_WCL_Token": token, "Origin": own, "Host": "evil.example"},
                {"X_WCL_Token": "guess", "Origin": own},
                {"Origin": own},
            ]
            for headers in forged:
                assert ask(server, "POST", "/stop", **headers).status == 403, headers
            assert ask(server, "POST", f"/stop?token={token}", Origin=own).status == 403
            assert ask(server, "GET", "/stop", X_WCL_Token=token).status == 404
            assert process.poll() is None
            answer = ask(server, "POST", "/stop", X_WCL_Token=token, Origin=own)
            assert "stopping" in json.loads(answer.content)["status"]
            assert process.wait(30) == 7
        finally:
            process.kill()
    assert trainer(run) == (False, None)
    answer = ask(server, "POST", "/stop", X_WCL_Token=token, Origin=own)
    assert "not training" in json.loads(answer.content)["status"]


def test_a_port_that_is_taken_is_named(
    server: WatchServer, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["watch", str(run), "--port", str(server.server_port)]) == 2
    complaint = capsys.readouterr().err
    assert "--port" in complaint and "in use" in complaint and complaint.count("\n") == 1


def test_a_port_that_cannot_be_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["watch", str(run), "--port", "70000"]) == 2
    assert "--port: must be between 0 and" in capsys.readouterr().err


def watching(run: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "wcl", "watch", str(run), "--port", "0"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_it_waits_for_a_run_that_has_not_begun(run: Path, tmp_path: Path) -> None:
    later = tmp_path / "runs" / "later"
    with watching(later) as process:
        try:
            assert process.stdout is not None
            words, address = process.stdout.readline().rsplit(" ", 1)
            assert words == "open"
            assert (
                process.stdout.readline() == f"{later}: no run there yet; the page waits for it\n"
            )
            (later / "checkpoints").mkdir(parents=True)  # which is no run yet
            with urlopen(address.strip(), timeout=30) as page:
                waiting = page.read().decode()
            assert f"wcl pretrain … --out {later}" in waiting and "Is it healthy?" not in waiting
            shutil.copy(run / "config.yaml", later / "config.yaml")
            with urlopen(address.strip(), timeout=30) as page:
                assert b"Is it healthy?" in page.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_ctrl_c_ends_the_waiting(tmp_path: Path) -> None:
    with watching(tmp_path / "never") as process:
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(3)]
            assert "no run there yet" in said[1] and "Ctrl-C" in said[2]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stdout.read() == "\n"
        finally:
            process.kill()


def test_a_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("mine")
    assert run_command(["watch", str(tmp_path / "run"), "--port", "0"]) == 2
    complaint = capsys.readouterr().err
    assert "a file, not the folder of a run" in complaint and complaint.count("\n") == 1
