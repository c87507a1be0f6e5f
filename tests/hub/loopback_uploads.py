"""How the loopback hub takes files: the documented endpoints that make a repository and bring files into it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from tests.hub.loopback import LoopbackHub

OWNER = "me"
TOKEN = "hf_writewritewritewritewritewr"


@dataclass
class Uploads:
    """What was sent to a hub.

    Attributes:
        stored: large files by hash, also those that no commit shows yet.
        puts: how often each large file was sent.
        cuts: so many of the next large files break off in the middle.
        refused: so many of the next large files are refused.
    """

    stored: dict[str, bytes] = field(default_factory=dict)
    puts: Counter[str] = field(default_factory=Counter)
    cuts: int = 0
    refused: int = 0


class Taking:
    """The answer to one request that brings something."""

    def __init__(self, hub: LoopbackHub, handler: BaseHTTPRequestHandler, path: str, token: str) -> None:
        self.hub, self.handler, self.path, self.token = hub, handler, path, token

    def give(self) -> tuple[int, dict[str, Any]]:
        """Return status and JSON of the answer."""
        if self.path.startswith("/lfs/"):
            return self._put(self.path.removeprefix("/lfs/"))
        body = self._body()
        if not self.token:
            return 401, {}
        if self.path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if self.path == "/lfs-verify":
            return 200, {}
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        name = self.path.removeprefix("/api/models/").strip("/").split("/preupload/")[0].split("/commit/")[0]
        name = name.removesuffix(".git/info/lfs/objects/batch")
        if not self._may_write(name):
            return 403, {}
        if self.path.endswith("/objects/batch"):
            return 200, {"transfer": "basic", "objects": [self._action(each) for each in json.loads(body)["objects"]]}
        if "/preupload/" in self.path:
            return 200, {"files": [self._mode(each) for each in json.loads(body)["files"]]}
        return self._commit(name, [json.loads(line) for line in body.splitlines()])

    def _may_write(self, name: str) -> bool:
        return self.token == TOKEN and name.partition("/")[0] == OWNER

    def _create(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        from tests.hub.loopback import Repository

        name = f"{asked['organization']}/{asked['name']}"
        if not self._may_write(name):
            return 403, {}
        if name in self.hub.repositories:
            return 409, {}
        extra = {"private": asked["visibility"] == "private", "safetensors": None}
        self.hub.repositories[name] = Repository({".gitattributes": b"* text"}, extra=extra)
        return 200, {"url": f"{self.hub.endpoint}/{name}"}

    def _mode(self, file: dict[str, Any]) -> dict[str, Any]:
        from tests.hub.loopback import LARGE_BYTES

        mode = "lfs" if file["size"] >= LARGE_BYTES else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _action(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["oid"] in self.hub.uploads.stored:
            return asked
        upload = {"href": f"{self.hub.storage}/lfs/{asked['oid']}"}
        return {**asked, "actions": {"upload": upload, "verify": {"href": f"{self.hub.endpoint}/lfs-verify"}}}

    def _put(self, oid: str) -> tuple[int, dict[str, Any]]:
        uploads = self.hub.uploads
        assert not self.token, "another host must not see the token"
        if uploads.cuts:
            uploads.cuts -= 1
            self.handler.rfile.read(1000)
            raise ConnectionError("cut")
        content = self._body()
        if uploads.refused:
            uploads.refused -= 1
            return 403, {}
        assert hashlib.sha256(content).hexdigest() == oid
        uploads.puts[oid] += 1
        uploads.stored[oid] = content
        return 200, {}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        files = self.hub.repositories[name].files
        for value in (line["value"] for line in lines if line["key"] != "header"):
            content = value.get("content")
            files[value["path"]] = base64.b64decode(content) if content else self.hub.uploads.stored[value["oid"]]
        return 200, {"commitUrl": f"{self.hub.endpoint}/{name}/commit/abc", "commitOid": "abc", "success": True}

    def _body(self) -> bytes:
        headers, stream = self.handler.headers, self.handler.rfile
        if headers.get("Transfer-Encoding", "") != "chunked":
            return stream.read(int(headers.get("Content-Length", 0)))
        pieces = []
        while size := int(stream.readline(), 16):
            pieces.append(stream.read(size))
            stream.readline()
        stream.readline()
        return b"".join(pieces)
