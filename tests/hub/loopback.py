"""A model hub on the loopback interface that serves the documented endpoints, and breaks as networks do."""

from __future__ import annotations

import contextlib
import hashlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub.loopback_uploads import Taking, Uploads

COMMIT = "c0ffee" * 6 + "beef"
LARGE_BYTES = 20_000
"""From here on a file is in large file storage."""
PIECE_BYTES = 4096
LOGIN_PAGE = b"<html><body>Please log in to use this network.</body></html>"


@dataclass
class Repository:
    """What a hub holds."""

    files: dict[str, bytes]
    gated: str = ""
    token: str = ""
    commit: str = COMMIT
    extra: dict[str, Any] = field(default_factory=dict)
    wrong_hash: str = ""
    """A file of which the hub names another hash than it has."""


@dataclass(frozen=True)
class Fault:
    """What befalls a request for a file; `after` bytes of the answer, where it begins at all."""

    kind: str
    after: int = 0


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that leave."""

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


class LoopbackHub:
    """A hub in this process; a context manager.

    Attributes:
        fault: asked for each request of a file with its name and first byte; None serves it well.
        requests: name and first byte of each such request.
        statuses: to answer the next requests to the interface with, before it works.
        tokens: what requests carried as token, by host.
        revoked: tokens that it doesn't accept for anything.
        prefix: what its paths begin with, as those of a mirror may.
        uploads: what was sent to it.
        dead: origins of clients that were killed; what they asked for is not answered any more.
    """

    def __init__(self, repositories: dict[str, Repository], tls: ssl.SSLContext | None = None) -> None:
        self.repositories, self._scheme = repositories, "https" if tls else "http"
        self.renamed: dict[str, str] = {}
        self.fault: Callable[[str, int], Fault | None] = lambda _name, _start: None
        self.requests: list[tuple[str, int]] = []
        self.statuses: list[tuple[int, dict[str, str]]] = []
        self.tokens: dict[str, set[str]] = {}
        self.revoked: set[str] = set()
        self.prefix = ""
        self.served: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.uploads = Uploads()
        self.closing = threading.Event()
        self.turn = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{self.prefix}"

    @property
    def storage(self) -> str:
        """Large files come from another host, which must not see the token."""
        return f"{self._scheme}://localhost:{self._server.server_port}"

    def __enter__(self) -> LoopbackHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def repository_of(folder: Path, **more: Any) -> Repository:
    """Return a repository with the files of a folder."""
    return Repository({path.name: path.read_bytes() for path in sorted(folder.iterdir())}, **more)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sibling(name: str, content: bytes, wrong: bool) -> dict[str, Any]:
    content_hashed = content + b"!" if wrong else content
    entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_sha1(content_hashed)}
    if len(content) >= LARGE_BYTES:
        entry["lfs"] = {"sha256": sha256(content_hashed), "size": len(content), "pointerSize": 134}
    return entry


def model_json(name: str, repository: Repository) -> dict[str, Any]:
    """Return what the hub says about a repository."""
    return {
        "_id": "1",
        "id": name,
        "modelId": name,
        "sha": repository.commit,
        "private": False,
        "gated": repository.gated or False,
        "disabled": False,
        "downloads": 12,
        "likes": 1,
        "tags": ["safetensors", "text-generation", "license:apache-2.0"],
        "pipeline_tag": "text-generation",
        "lastModified": "2025-05-01T10:00:00.000Z",
        "createdAt": "2025-04-01T10:00:00.000Z",
        "config": {"model_type": "llama", "tokenizer_config": {"chat_template": "{{ messages }}"}},
        "safetensors": {"parameters": {"F32": 1000}, "total": 1000},
        "siblings": [
            _sibling(path, content, path == repository.wrong_hash) for path, content in repository.files.items()
        ],
    } | repository.extra


def modelscope_json(name: str, _repository: Repository) -> dict[str, Any]:
    """Return what ModelScope's search says about a repository."""
    return {"id": name, "downloads": 7, "params": 1000, "license": "Apache-2.0", "private": False, "gated": False}


def modelscope_files(repository: Repository) -> list[dict[str, Any]]:
    """Return the files of a repository as ModelScope lists them."""
    files = [
        {
            "Path": path,
            "Type": "blob",
            "Size": len(content),
            "Sha256": sha256(content + b"!") if path == repository.wrong_hash else sha256(content),
            "Revision": repository.commit if path == "config.json" else "f" * 40,
        }
        for path, content in repository.files.items()
    ]
    return [{"Path": "figures", "Type": "tree", "Size": 0}, *files]


def _handler(hub: LoopbackHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            with contextlib.suppress(ConnectionError):
                _Answer(hub, self).give()

        def do_POST(self) -> None:
            try:
                _Answer(hub, self).take()
            except ConnectionError:
                self.close_connection = True

        def do_PUT(self) -> None:
            self.do_POST()

    return Handler


class _Answer:
    """The answer to one request."""

    def __init__(self, hub: LoopbackHub, handler: BaseHTTPRequestHandler) -> None:
        self.hub, self.handler = hub, handler
        url = urlsplit(handler.path)
        self.path, self.query = unquote(url.path), parse_qs(url.query)
        if self.path.startswith(f"{hub.prefix}/"):
            self.path = self.path.removeprefix(hub.prefix)
        self.token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        host = handler.headers.get("Host", "").partition(":")[0]
        hub.tokens.setdefault(host, set()).add(self.token)

    def take(self) -> None:
        status, told = Taking(self.hub, self.handler, self.path, self.token).give()
        self.send(status, json.dumps(told).encode(), **{"Content-Type": "application/json"})

    def give(self) -> None:
        if self.token in self.hub.revoked:
            self.send(401, b"", **{"X-Error-Message": "Invalid credentials in Authorization header"})
        elif self.path.startswith("/api/models"):
            if self.hub.statuses:
                status, headers = self.hub.statuses.pop(0)
                self.send(status, b"", **headers)
            else:
                self.give_facts(self.path.removeprefix("/api/models").strip("/"))
        elif self.path.startswith(("/openapi/v1/models", "/api/v1/models/", "/models/")):
            self.give_as_modelscope()
        elif self.path.startswith("/storage/"):
            _, _, name, file = self.path.split("/", 3)
            self.give_content(file, self.hub.repositories[name.replace("--", "/")].files[file])
        else:
            self.give_file()

    def give_facts(self, rest: str) -> None:
        if not rest:
            text = self.query.get("search", [""])[0]
            found = [model_json(*each) for each in self.hub.repositories.items() if text in each[0]]
            self.send_json(found)
            return
        name, _, revision = rest.partition("/revision/")
        if name in self.hub.renamed:
            self.send(307, b"", Location=f"/api/models/{self.hub.renamed[name]}")
        elif name not in self.hub.repositories:
            # Who is not logged in is not told whether a name is free or private.
            self.refuse(404 if self.token else 401, "RepoNotFound")
        elif revision not in ("", "main", self.hub.repositories[name].commit):
            self.refuse(404, "RevisionNotFound")
        elif self.hub.repositories[name].token and not self.hub.repositories[name].gated and not self.token:
            self.refuse(401, "RepoNotFound")
        else:
            self.send_json(model_json(name, self.hub.repositories[name]))

    def give_file(self) -> None:
        name, _, rest = self.path.strip("/").partition("/resolve/")
        commit, _, file = rest.partition("/")
        repository = self.hub.repositories[name]
        if repository.gated and self.token != repository.token:
            self.refuse(403 if self.token else 401, "GatedRepo")
        elif commit not in ("main", repository.commit) or file not in repository.files:
            self.refuse(404, "EntryNotFound")
        elif len(repository.files[file]) >= LARGE_BYTES:
            linked = {"X-Linked-Etag": f'"{sha256(repository.files[file])}"', "X-Repo-Commit": commit}
            storage = f"{self.hub.storage}/storage/{name.replace('/', '--')}/{file}"
            self.send(302, b"", Location=storage, **linked)
        else:
            self.give_content(file, repository.files[file], ETag=f'"{git_sha1(repository.files[file])}"')

    def give_as_modelscope(self) -> None:
        """Answer as ModelScope does: another form of the same facts, and parts of files that are called whole."""
        if self.path.startswith("/openapi/"):
            text = self.query.get("search", [""])[0]
            found = [modelscope_json(*each) for each in self.hub.repositories.items() if text in each[0]]
            self.send_json({"success": True, "data": {"models": found, "total_count": len(found)}})
            return
        rest = self.path.removeprefix("/api/v1").removeprefix("/models/")
        name = "/".join(rest.split("/")[:2])
        if name not in self.hub.repositories:
            self.send(404, b"{}")
            return
        repository = self.hub.repositories[name]
        if rest.endswith("/repo/files"):
            known = self.query.get("Revision", ["master"])[0] in ("master", repository.commit)
            data = {"Files": modelscope_files(repository) if known else None}
            self.send_json({"Code": 200, "Success": True, "Data": data | {"LatestCommitter": {"ShortId": COMMIT[:8]}}})
        elif "/resolve/" in rest:
            commit, _, file = rest.partition("/resolve/")[2].partition("/")
            if repository.gated:
                self.send(403, b"")
            elif commit in ("master", repository.commit) and file in repository.files:
                self.give_content(file, repository.files[file], whole_status=True)
            else:
                self.send(404, b"")
        else:
            about = {"License": "Apache License 2.0", "Downloads": 7}
            self.send_json({"Code": 200, "Success": True, "Data": about})

    def give_content(self, name: str, content: bytes, *, whole_status: bool = False, **headers: str) -> None:
        """Send a file from the byte that was asked for, or what the fault makes of it."""
        agent = self.handler.headers.get("User-Agent", "")
        if any(agent.endswith(f"origin/{origin}") for origin in self.hub.dead):
            self.handler.close_connection = True
            return
        asked = self.handler.headers.get("Range", "bytes=0-")
        start = int(asked.removeprefix("bytes=").rstrip("-"))
        with self.hub.turn:
            self.hub.requests.append((name, start))
            fault = self.hub.fault(name, start)
        kind = fault.kind if fault else ""
        if kind.isdigit():
            self.send(int(kind), b"", **({"Retry-After": "0"} if kind == "429" else {}))
            return
        if kind == "login":
            self.send(200, LOGIN_PAGE, **{"Content-Type": "text/html"})
            return
        body = content[start:]
        total, status = len(content), 206 if start else 200
        if kind == "ignore-range":
            body, status, start = content, 200, 0
        elif kind == "wrong-range" and start:
            body, start = content[start - 1 :], start - 1
        elif kind == "flip" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
        self.head(200 if whole_status else status, len(body), headers)
        self.pour(name, body, fault)

    def pour(self, name: str, body: bytes, fault: Fault | None) -> None:
        kind = fault.kind if fault else ""
        until = min(len(body), fault.after) if fault and kind in ("cut", "stall") else len(body)
        for begin in range(0, until, PIECE_BYTES):
            piece = body[begin : min(begin + PIECE_BYTES, until)]
            self.handler.wfile.write(piece)
            self.hub.served[name] += len(piece)
        self.handler.wfile.flush()
        if kind == "stall":
            self.hub.closing.wait(2.0)
        if until < len(body) or kind in ("cut", "stall"):
            self.handler.close_connection = True

    def refuse(self, status: int, code: str) -> None:
        self.send(status, b"", **{"X-Error-Code": code, "X-Error-Message": "no"})

    def send_json(self, value: Any) -> None:
        self.send(200, json.dumps(value).encode(), **{"Content-Type": "application/json"})

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.head(status, len(body), headers)
        self.handler.wfile.write(body)

    def head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.send_header("Content-Length", str(length))
        self.handler.end_headers()


@contextlib.contextmanager
def serving(**repositories: Repository) -> Iterator[LoopbackHub]:
    """Serve repositories of the organization "org"."""
    with LoopbackHub({f"org/{name}": each for name, each in repositories.items()}) as hub:
        yield hub
