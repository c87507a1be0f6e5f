"""An export as a repository of a hub: what is there already is not sent again, and nothing of others is replaced."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError

from tunesmith_core import hub_token
from tunesmith_core.downloads import is_whole
from tunesmith_core.environments import MODELSCOPE_VARIABLE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import CARD_NAME, HubFile, HubModel
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import is_hub_id
from tunesmith_core.redact import redact
from tunesmith_engine.hub.attempts import OF_NETWORK, Retry
from tunesmith_engine.hub.client import Hub
from tunesmith_engine.hub.download import Journal, tell_wait

UPLOADING = Message("uploading")
TOLD_FILES = (CARD_NAME, "adapter_config.json")
"""They name the base model, by its folder on this computer where it is one."""

OF_THE_HUB = frozenset({".gitattributes"})
"""A hub puts them into every new repository."""

COMMIT_MESSAGE = "Upload a model trained with Tunesmith"
Result = TypeVar("Result")


def upload(
    journal: Journal,
    folder: Path,
    hub_id: str,
    scratch: Path,
    *,
    public: bool,
    endpoint: str = "",
    retry: Retry | None = None,
) -> dict[str, Any]:  # Any: JSON values
    """Bring the files of an export into a repository, and return its address and what was sent.

    Args:
        journal: told how it goes.
        folder: of the export.
        hub_id: OWNER/NAME of the repository, which is made where there is none.
        scratch: a folder for files that are sent otherwise than they are.
        public: whether everybody may see a repository that is made.
        endpoint: of the hub; "" for the one of the surroundings.
        retry: how long the network is waited for.

    Raises:
        TunesmithError: `hub-write-refused` without the right to write, `hub-name-taken` where the repository holds
            something else, what the network does. Files that have arrived need not be sent again.
    """
    if os.environ.get(MODELSCOPE_VARIABLE):
        raise TunesmithError(
            "hub-write-refused",
            "{id}: Tunesmith uploads to Hugging Face, and the model hub that is chosen is ModelScope.",
            hint="Choose Hugging Face as the model hub in the settings.",
            id=hub_id,
        )
    if not hub_token.token():
        raise TunesmithError("hub-write-refused", "{id}: there is no access token.", id=hub_id)
    hub = Hub(endpoint, retry=retry or Retry(), on_wait=lambda error, pause_s: tell_wait(journal, error, pause_s))
    push = _Push(hub, hub_id, _contents(folder, scratch))
    journal.event("plan", id=hub_id, total_bytes=push.total_bytes, num_files=len(push.contents))
    there = push.look()
    if there is None:
        push.create(public)
    elif not there.private and not public:
        raise TunesmithError(
            "hub-name-taken",
            "{id} exists and is public.",
            hint="Choose another name, or add --public.",
            id=hub_id,
        )
    push.send(journal)
    return {"id": hub_id, "url": hub.page(hub_id), "private": there.private if there else not public}


class _Content(io.BufferedReader):
    """A file that is sent; `sent` is told each position that is read."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self.sent: Callable[[int], object] = lambda _position: None

    def read(self, size: int | None = -1, /) -> bytes:
        """Read on and tell it."""
        found = super().read(size)
        self.sent(self.tell())
        return found


class _Push:
    """One export on its way."""

    def __init__(self, hub: Hub, hub_id: str, contents: dict[str, Path]) -> None:
        self._hub, self._id, self.contents = hub, hub_id, contents
        self._api = HfApi(endpoint=hub.endpoint)
        self.sizes = {name: path.stat().st_size for name, path in contents.items()}

    @property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(self.sizes.values())

    def look(self) -> HubModel | None:
        """Return the repository, None where there is none. Raises UserError `hub-name-taken` for others' files."""
        try:
            there = self._hub.facts(self._id)
        except TunesmithError as error:
            if error.code == "hub-not-found":
                return None
            raise _writing(error, self._id) from error
        others = [file.path for file in there.files if file.path not in OF_THE_HUB and not self._is_ours(file)]
        if others:
            raise TunesmithError(
                "hub-name-taken",
                "{id} exists and holds other files: {names}.",
                id=self._id,
                names=", ".join(others[:3]),
            )
        return there

    def _is_ours(self, file: HubFile) -> bool:
        path = self.contents.get(file.path)
        return path is not None and is_whole(path, file)

    def create(self, public: bool) -> None:
        """Make the repository."""
        self._request(lambda: self._api.create_repo(self._id, private=not public, exist_ok=True))

    def send(self, journal: Journal) -> None:
        """Send the files, and then show all of them at once."""
        with contextlib.ExitStack() as opened:
            self._send(journal, opened)
        journal.event("progress", name=UPLOADING, done_bytes=self.total_bytes, total_bytes=self.total_bytes)

    def _send(self, journal: Journal, opened: contextlib.ExitStack) -> None:
        before, operations = 0, []
        for name, path in self.contents.items():

            def tell(position: int, before: int = before) -> None:
                journal.event("progress", name=UPLOADING, done_bytes=before + position, total_bytes=self.total_bytes)

            tell(0)
            # A file object has the library send it by the documented interface of large files.
            content = opened.enter_context(_Content(io.FileIO(path)))
            operation = CommitOperationAdd(name, content)
            operations.append(operation)
            # It is read once for its hash, and again to be sent.
            operation.upload_info.sha256  # noqa: B018 - computes it
            content.sent = _every(tell, self.total_bytes // 200)
            self._request(partial(self._api.preupload_lfs_files, self._id, [operation]))
            before += self.sizes[name]
        self._request(lambda: self._api.create_commit(self._id, operations, commit_message=COMMIT_MESSAGE))

    def _request(self, request: Callable[[], Result]) -> Result:
        def unwrapped() -> Result:
            try:
                return request()
            except RuntimeError as error:
                # So the library tells what the network did to a large file.
                raise (error.__cause__ if isinstance(error.__cause__, OF_NETWORK) else error) from None

        try:
            return self._hub.attempts(self._id).run(unwrapped)
        except TunesmithError as error:
            raise _writing(error, self._id) from error


def _every(tell: Callable[[int], object], num_bytes: int) -> Callable[[int], object]:
    """Return what tells a position only where it is some bytes further."""
    told = [0]

    def sent(position: int) -> None:
        if position < told[0] or position - told[0] >= num_bytes:
            told[0] = position
            tell(position)

    return sent


def _writing(error: TunesmithError, hub_id: str) -> TunesmithError:
    """Return an error about access as one about writing."""
    cause = error.__cause__
    if isinstance(cause, HfHubHTTPError) and cause.response.status_code == 409:
        return TunesmithError("hub-name-taken", "{id}: the hub already has something of this name.", id=hub_id)
    if error.code == "hub-gated-401":
        return TunesmithError("hub-write-refused", "The hub does not let this account write to {id}.", id=hub_id)
    return error


def _contents(folder: Path, scratch: Path) -> dict[str, Path]:
    """Return the files of an export by name; those that name the base model's folder say its last name only."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    contents = {path.name: path for path in paths}
    for name in contents.keys() & set(TOLD_FILES):
        told = _told(folder, contents[name])
        contents[name] = scratch / name
        contents[name].write_text(told, encoding="utf-8", newline="")
    return contents


def _told(folder: Path, path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    base = _base(folder)
    if base and not is_hub_id(base):
        # A hub refuses a card whose base model is not one of its own, and nobody else has this folder.
        text = re.sub(r"(?m)^base_model(_relation)?:.*\n", "", text, count=2)
        text = text.replace(json.dumps(base)[1:-1], Path(base).name).replace(base, Path(base).name)
    return redact(text)


def _base(folder: Path) -> str:
    """Return what the card names as base model."""
    found = re.search(r"(?m)^base_model: *(.+)$", (folder / CARD_NAME).read_text(encoding="utf-8"))
    return found[1].strip() if found else ""
