"""`wcl watch`: serve the live page of a run to browsers on this machine.

The address that is printed ends in a secret token; requests without it are refused. Other sites
open in the same browser can send requests here too, but they do not know the token and cannot read
the answers. Requests for another host name (Host) or from another page (Origin) are also refused.
"""

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
from wcl.report.live import run_page, run_state, waiting_page, waiting_state
from wcl.report.runs import Run, read_run, shortened
from wcl.report.trainer import ask_to_stop
from wcl.system.errors import InputError, RunError
from wcl.system.paths import expanded
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

_ADDRESS = "127.0.0.1"
_TOKEN = "X-WCL-Token"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def watch(path: str, config: WatchConfig) -> None:
    """Serve the live page until Ctrl-C.

    Raises:
        InputError: the path is a file, or the port cannot be used.
    """
    with open_server(path, config.port) as server:
        try:
            print(f"open {server.address}", flush=True)
            if not server.files.is_run:
                print(f"{shortened(server.files.path)}: no run there yet; the page waits for it")
            print("Ctrl-C ends this server; the run continues", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()


class WatchServer(ThreadingHTTPServer):
    """The server of one run's page.

    Args:
        folder: of the run, which need not exist yet.
        port: 0 for any free one.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((_ADDRESS, port), _Handler)
        self.files = RunFolder(folder)
        self.token = secrets.token_urlsafe(24)
        self._run: Run | None = None
        """As of the last time that the page was opened; None if it had not started."""

    def page(self) -> str:
        run = self._read_run()
        return run_page(run) if run else waiting_page(self.files.path)

    def state(self, version: str) -> dict[str, Any]:
        run = self._run or self._read_run()
        if run is None:
            return waiting_state(self.files.path)
        # While a run trains, only its metrics change.
        return run_state(replace(run, lines=read_metrics(self.files.metrics)), version)

    def _read_run(self) -> Run | None:
        self._run = read_run(str(self.files.path)) if self.files.is_run else None
        return self._run

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except that a browser closed the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def host_names(self) -> set[str]:
        """Names by which a browser on this machine may reach the server."""
        hosts = (_ADDRESS, "localhost")
        return {*hosts, *(f"{host}:{self.server_port}" for host in hosts)}

    @property
    def address(self) -> str:
        return f"http://{_ADDRESS}:{self.server_port}/?token={self.token}"


def open_server(path: str, port: int) -> WatchServer:
    """Open the port of a server that is not yet serving.

    Raises:
        InputError: the path is a file, or the port cannot be used.
    """
    folder = expanded(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path}: a file, not the folder of a run")
    try:
        return WatchServer(folder, port)
    except OSError as error:
        raise InputError(
            f"--port: {port} cannot be used ({error.strerror}); choose another, or 0 for any free "
            "one"
        ) from error


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = 10

    def do_GET(self) -> None:
        try:
            self._get()
        except ConnectionError:
            raise
        except (InputError, OSError) as error:  # the run's folder is gone
            self._send(f"{error}\n".encode(), "text/plain; charset=utf-8", 404)

    def _get(self) -> None:
        path, _, query_string = self.path.partition("?")
        query = {name: values[0] for name, values in parse_qs(query_string).items()}
        if self.headers.get("Host") not in self.server.host_names:
            self._refuse("wrong host")
        elif not self._has_token(query.get("token", self.headers.get(_TOKEN, ""))):
            self._refuse("open the address that wcl watch printed")
        elif path == "/":
            self._send(self.server.page().encode(), "text/html; charset=utf-8")
        elif path == "/state":
            self._send_json(self.server.state(query.get("version", "")))
        elif path == "/neighbors":
            self._send(self.server.files.neighbors.read_bytes(), "image/png")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        host = self.headers.get("Host")
        if host not in self.server.host_names:
            self._refuse("wrong host")
        elif self.headers.get("Origin") != f"http://{host}":
            self._refuse("wrong origin")
        elif not self._has_token(self.headers.get(_TOKEN, "")):
            self._refuse("wrong token")
        elif self.path != "/stop":
            self.send_error(404)
        else:
            try:
                ask_to_stop(self.server.files.path)
                self._send_json({"status": "stopping after this step"})
            except RunError as error:
                self._send_json({"status": str(error)})

    def _has_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.server.token.encode())

    def _refuse(self, why: str) -> None:
        self._send(f"refused: {why}\n".encode(), "text/plain; charset=utf-8", 403)

    def _send_json(self, values: dict[str, Any]) -> None:
        self._send(json.dumps(values).encode(), "application/json")

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the page asks every two seconds."""
