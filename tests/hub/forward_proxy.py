"""A proxy on the loopback interface, as companies have one: it forwards plain requests and makes tunnels for others."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 16


class ForwardProxy(ThreadingHTTPServer):
    """Counts what goes through it.

    Attributes:
        forwarded: addresses of plain requests.
        tunnels: hosts and ports that were connected to.
        password: what a client has to name itself with, as user:password; "" for anybody.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.forwarded: list[str] = []
        self.tunnels: list[str] = []
        self.password = ""
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that leave."""


class _Handler(BaseHTTPRequestHandler):
    server: ForwardProxy

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _may_pass(self) -> bool:
        named = base64.b64encode(self.server.password.encode()).decode()
        if self.server.password and self.headers.get("Proxy-Authorization") != f"Basic {named}":
            self.send_response(407, "Proxy Authentication Required")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False
        return True

    def do_GET(self) -> None:
        if not self._may_pass():
            return
        self.server.forwarded.append(self.path)
        url = urlsplit(self.path)
        onward = HTTPConnection(url.hostname or "", url.port)
        headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        onward.request(self.command, f"{url.path}?{url.query}", headers=headers)
        answer = onward.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        while piece := answer.read(PIECE_BYTES):
            self.wfile.write(piece)
        onward.close()

    do_HEAD = do_GET

    def do_CONNECT(self) -> None:
        if not self._may_pass():
            return
        self.server.tunnels.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            self._carry(far)
        self.close_connection = True

    def _carry(self, far: socket.socket) -> None:
        ends = {self.connection: far, far: self.connection}
        while True:
            ready, _, _ = select.select(list(ends), [], [])
            for end in ready:
                piece = end.recv(PIECE_BYTES)
                if not piece:
                    return
                ends[end].sendall(piece)


@contextlib.contextmanager
def proxying() -> Iterator[ForwardProxy]:
    with ForwardProxy() as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()
