"""One file of a repository, byte by byte, on to where an earlier process came.

huggingface_hub's own `http_get` is not used for that: its partial files are lost with the process, what a chunk of
10 MB holds is lost with the connection, it gives up after five faults, waits a whole second after each, starts again
at zero when a server ignores a range, and checks sizes but no hash. Its session, headers, addresses and errors are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from huggingface_hub import get_session
from huggingface_hub.utils import hf_raise_for_status

from tunesmith_core import files
from tunesmith_core.downloads import is_whole, part_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import HubFile, HubModel
from tunesmith_core.messages import Message
from tunesmith_engine.hub.attempts import OF_NETWORK, Stopped, WrongAnswer
from tunesmith_engine.hub.client import Hub

SYNC_BYTES = 64 << 20
"""After so much, what arrived is made durable: a power cut costs no more."""

WHOLE_TRIES = 2
"""How often a file is downloaded whose hash is wrong in the end."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def fetch(hub: Hub, model: HubModel, file: HubFile, staging: Path, on_bytes: Callable[[int], object]) -> None:
    """Bring a file into the staging folder, verified, under its own name.

    Args:
        hub: where it is.
        model: its repository.
        file: what it must be.
        staging: the folder.
        on_bytes: called with how many bytes arrived, or were given up (negative).

    Raises:
        TunesmithError: what the network did, or `download-damaged`. Stopped: when the hub's stop is set.
        OSError: as the file system says; what arrived stays.
    """
    part = part_of(staging, file)
    for tried in range(WHOLE_TRIES):
        _fill(hub, model, file, part, on_bytes)
        if is_whole(part, file):
            files.replace(part, staging / file.path)
            files.crashpoint("download.after-file")
            return
        files.remove(part)
        on_bytes(-file.size_bytes)
        if tried == WHOLE_TRIES - 1:
            raise TunesmithError("download-damaged", "{id}: {name}", link=model.page, id=model.id, name=file.path)


def _fill(hub: Hub, model: HubModel, file: HubFile, part: Path, on_bytes: Callable[[int], object]) -> None:
    """Append what is missing, in as many requests as the network makes necessary."""
    attempts = hub.attempts(model.id)
    url = hub.file_url(model, file.path)

    def arrived(num_bytes: int) -> None:
        attempts.progressed()
        on_bytes(num_bytes)

    with files.open_file(part, "ab") as target:
        if target.tell() > file.size_bytes:
            on_bytes(-file.size_bytes)
            target.truncate(0)
        while target.tell() < file.size_bytes:
            try:
                _request(hub, url, file, target, arrived)
            except OF_NETWORK as error:
                target.flush()
                attempts.failed(error)
        target.flush()
        os.fsync(target.fileno())


def _request(hub: Hub, url: str, file: HubFile, target: IO[bytes], arrived: Callable[[int], object]) -> None:
    """Append what one answer brings."""
    start = target.tell()
    headers = hub.headers() | ({"Range": f"bytes={start}-"} if start else {})
    with get_session().stream("GET", url, headers=headers) as response:
        hf_raise_for_status(response)
        to_skip = start - _first_byte(response, file, start)
        synced = start
        for chunk in response.iter_raw():
            if hub.stop.is_set():
                raise Stopped
            # A server that ignores the range sends the file from its beginning: what is here already is passed over.
            new = chunk[to_skip:][: file.size_bytes - target.tell()]
            to_skip = max(0, to_skip - len(chunk))
            target.write(new)
            target.flush()
            if new:
                arrived(len(new))
            if target.tell() - synced >= SYNC_BYTES:
                synced = target.tell()
                os.fsync(target.fileno())
            if target.tell() == file.size_bytes:
                return
    raise WrongAnswer(Message("the answer was shorter than the file {name}", name=file.path))


def _first_byte(response: Any, file: HubFile, asked: int) -> int:  # Any: an httpx response
    """Return at which byte an answer begins. Raises WrongAnswer when it is not of this file."""
    part = response.headers.get("Content-Range", "")
    # Some servers call a part whole, and say which part it is.
    if response.status_code == 206 or (response.status_code == 200 and part):
        found = _CONTENT_RANGE.fullmatch(part)
        if not found or int(found[1]) != asked or found[2] not in ("*", str(file.size_bytes)):
            raise WrongAnswer(Message("the answer is not the part of {name} that was asked for", name=file.path))
        return asked
    length = response.headers.get("Content-Length")
    if response.status_code != 200 or (length is not None and length != str(file.size_bytes)):
        raise WrongAnswer(Message("the answer is not the file {name}", name=file.path))
    return 0
