"""A web server that shows a folder, as people publish images."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def served(folder: Path, password: str = "") -> Iterator[str]:
    """Yield the address of a folder; with a password, for the user `me` alone."""
    token = base64.b64encode(f"me:{password}".encode()).decode()

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            file = Path(self.translate_path(self.path))
            if password and self.headers.get("Authorization") != f"Basic {token}":
                self.send_error(401)
            elif "Range" in self.headers and file.is_file():
                self._send_range(file.read_bytes(), self.headers["Range"].removeprefix("bytes="))
            else:
                super().do_GET()

        def _send_range(self, content: bytes, wanted: str) -> None:
            first, _, last = wanted.partition("-")
            part = content[int(first) : int(last) + 1]
            end = int(first) + len(part) - 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{end}/{len(content)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
