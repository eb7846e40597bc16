"""`wcl watch`: the curves of a run in the browser while it trains, and a button that stops it.

The server answers this machine alone, and there only who has the address that was printed: it ends
in a secret. Other sites that are open in the same browser can send requests here too; they neither
know the secret nor may they read what is answered, and requests that were meant for another name
(Host) or come from another page (Origin) are refused.
"""

import errno
import hmac
import json
import secrets
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from wcl.config import WatchConfig
from wcl.report.charts import charts
from wcl.report.page import render
from wcl.report.provenance import commands, duration, evaluation_command, run_provenance
from wcl.report.runs import Run, read_run, short, text
from wcl.report.scores import evaluated, verdicts
from wcl.report.trainer import ask_to_stop, trainer
from wcl.system.errors import InputError, RunError
from wcl.system.paths import expanded
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import is_number, read_metrics
from wcl.training.provenance import typed

_HOME = "127.0.0.1"
_SCRIPTS = ("charts.js", "watch.js")
_USUAL_PORT = 80
_RECENT = 5  # epochs whose time tells that of the coming ones
_SECRET = "X-WCL-Token"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def watch(path: str, config: WatchConfig) -> None:
    """Serve the page until Ctrl-C; as long as there is no run, one that waits for it.

    Raises:
        InputError: there cannot be a run, or the port cannot be had.
    """
    with open_server(path, config.port) as server:
        try:
            print(f"watch it at {server.address}", flush=True)
            if not RunFolder(server.folder).is_run:
                print(f"{short(server.folder)}: no run there yet; the page waits for it")
            print("Ctrl-C ends the watching; the run goes on", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()


class WatchServer(ThreadingHTTPServer):
    """A server of one run's page.

    Args:
        folder: of the run, which need not have begun.
        port: 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((_HOME, port), _Answer)
        self.folder = folder
        self.secret = secrets.token_urlsafe(24)
        self.run: Run | None = None
        """As it was when the page was last opened; None if it had not begun."""

    def look(self) -> Run | None:
        """All that there is of the run."""
        self.run = read_run(str(self.folder)) if RunFolder(self.folder).is_run else None
        return self.run

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away; others' faults are told as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def page(self) -> str:
        run = self.look()
        return _page(run) if run else _waiting_page(self.folder)

    def state(self, version: str) -> dict[str, Any]:
        run = self.run or self.look()
        if run is None:
            return waiting(self.folder)
        # The settings of a run that trains stay as they are, its lines do not.
        return state(replace(run, lines=read_metrics(RunFolder(run.folder).metrics)), version)

    @property
    def names(self) -> set[str]:
        """What a browser on this machine may call the server."""
        hosts = (_HOME, "localhost")
        usual = hosts if self.server_port == _USUAL_PORT else ()  # which browsers leave out
        return {*usual, *(f"{host}:{self.server_port}" for host in hosts)}

    @property
    def address(self) -> str:
        return f"http://{_HOME}:{self.server_port}/?token={self.secret}"


def open_server(path: str, port: int) -> WatchServer:
    """A server that waits to be started.

    Raises:
        InputError: there cannot be a run, or the port cannot be had.
    """
    folder = expanded(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path}: a file, not the folder of a run")
    if not 0 <= port <= 65535:
        raise InputError(f"--port: must be between 0 and 65535, not {port}")
    try:
        return WatchServer(folder, port)
    except OSError as error:
        reasons = {errno.EADDRINUSE: "is in use", errno.EACCES: "may not be used"}
        why = reasons.get(error.errno or 0, f"cannot be used ({error.strerror})")
        raise InputError(f"--port: {port} {why}; choose another, or 0 for any free one") from error


class _Answer(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = 10

    def do_GET(self) -> None:
        try:
            self._answer()
        except (InputError, OSError) as error:  # the run's folder has gone, or the browser has
            if not isinstance(error, ConnectionError):
                self._send(f"{error}\n".encode(), "text/plain; charset=utf-8", 404)

    def _answer(self) -> None:
        path, _, asked = self.path.partition("?")
        query = {name: values[0] for name, values in parse_qs(asked).items()}
        if self.headers.get("Host") not in self.server.names:
            self._refuse("for another host")
        elif not self._knows(query.get("token", self.headers.get(_SECRET, ""))):
            self._refuse("open the address that wcl watch printed")
        elif path == "/":
            self._send(self.server.page().encode(), "text/html; charset=utf-8")
        elif path == "/state":
            found = self.server.state(query.get("version", ""))
            self._send(json.dumps(found).encode(), "application/json")
        elif path == "/neighbors.png":
            self._send(RunFolder(self.server.folder).neighbors.read_bytes(), "image/png")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        host = self.headers.get("Host")
        if host not in self.server.names:
            self._refuse("for another host")
        elif self.headers.get("Origin") != f"http://{host}":
            self._refuse("from another page")
        elif not self._knows(self.headers.get(_SECRET, "")):
            self._refuse("without the secret of this page")
        elif self.path != "/stop":
            self.send_error(404)
        else:
            try:
                ask_to_stop(self.server.folder)
                answer = {"said": "asked it to stop after this step"}
            except RunError as error:
                answer = {"said": str(error)}
            self._send(json.dumps(answer).encode(), "application/json")

    def _knows(self, secret: str) -> bool:
        return hmac.compare_digest(secret.encode(), self.server.secret.encode())

    def _refuse(self, why: str) -> None:
        self._send(f"refused: {why}\n".encode(), "text/plain; charset=utf-8", 403)

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a line for every look at the curves would bury the address."""


def state(run: Run, version: str = "") -> dict[str, Any]:
    """How far a run is, and its curves if they are not those of `version`."""
    training, pid = trainer(run.folder)
    epochs, wanted, done = _epochs(run), _wanted(run), _done(run)
    last = run.lines[-1] if run.lines else {"step": 0, "epoch": 0}
    gather_embeddings = (
        f" of {wanted}" if wanted else ""
    )  # which its settings say, if they can be read
    said = f"epoch {int(last.get('epoch', 0))}{gather_embeddings}, step {int(last['step']):,}"
    if not run.lines:
        said = "no step is logged yet"
        if training and run.config is not None:
            said += f"; the first figures come after {run.config.log.every} steps, or an epoch"
    finished = _finished(run)
    if finished:
        said = f"finished: {done} epochs, {int(last['step']):,} steps"
    elif not training:
        command = typed("wcl", "pretrain", "--out", short(run.folder), "--resume")
        said += "; not being trained" + (f". Go on with: {command}" if wanted else "")
    recent = [line["seconds"] for line in epochs[-_RECENT:] if is_number(line.get("seconds"))]
    if training and recent and wanted and not finished:
        said += f", about {duration(sum(recent) / len(recent) * (wanted - done))} left"
    now = f"{len(run.lines)} {last['step']}"
    found: dict[str, Any] = {
        "made_of": _made_of(run.folder, finished),
        "said": said,
        "training": training,
        "stoppable": pid is not None and not finished,
        "done": done / wanted if wanted else 0.0,
        "version": now,
        "neighbors": _changed(RunFolder(run.folder).neighbors),
    }
    if now != version:
        found |= {"runs": [run.name], **charts([run])}
    return found


def waiting(folder: Path) -> dict[str, Any]:
    """The state of a run that has not begun."""
    return {
        "made_of": _made_of(folder, False),
        "said": "no run there yet; this page shows it as soon as it begins",
        "training": False,
        "stoppable": False,
        "done": 0.0,
        "version": "",
        "neighbors": 0.0,
    }


def _wanted(run: Run) -> int:
    return run.config.epochs if run.config else 0


def _epochs(run: Run) -> list[dict[str, Any]]:
    return [line for line in run.lines if line.get("kind") == "epoch"]


def _done(run: Run) -> int:
    epochs = _epochs(run)
    return int(epochs[-1]["epoch"]) if epochs else 0


def _finished(run: Run) -> bool:
    return bool(_wanted(run)) and _done(run) >= _wanted(run)


def _changed(path: Path) -> float:
    """When a file was last written; 0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _made_of(folder: Path, finished: bool) -> str:
    """What the page was made of besides curves; when that has changed, it loads itself anew."""
    files = RunFolder(folder)
    settings, evaluation = _changed(files.config), _changed(files.evaluation)
    return f"{files.is_run} {files.encoder.is_file()} {finished} {settings} {evaluation}"


def _page(run: Run) -> str:
    spec = run.config.data if run.config else ""
    has_encoder = run.encoder_file.is_file()
    missing = [f"{words}." for words in run.missing]
    if run.evaluation is None and has_encoder:
        command = evaluation_command(run, spec or "SRC")
        missing.append(f"If the images have labels, `{command}` measures it.")
    scores, ended = evaluated([run]), "" if has_encoder else ", as soon as an epoch has ended"
    return render(
        "watch.html",
        _SCRIPTS,
        {"made_of": _made_of(run.folder, _finished(run))},
        live=True,
        title=f"watching {run.name}",
        kind="wcl watch",
        names=[run.name],
        lead=f"{run.config.method} on {short(spec)}" if run.config else "",
        verdicts=verdicts(scores, [run.name]),
        scores=scores,
        missing=missing,
        has_curves=True,
        curve_notes=[],
        later=f"`{typed('wcl', 'report', short(run.folder))}` shows it{ended}.",
        provenance=[run_provenance(run)],
        commands=commands([run], spec, RunFolder(run.folder).report, False),
        machine=[],
    )


def _waiting_page(folder: Path) -> str:
    name = text(folder.absolute().name)
    return render(
        "waiting.html",
        _SCRIPTS,
        {"made_of": _made_of(folder, False)},
        live=True,
        title=f"waiting for {name}",
        kind="wcl watch",
        names=[name],
        lead="",
        command=f"wcl pretrain … {typed('--out', short(folder))}",
    )
