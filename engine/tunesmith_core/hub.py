"""Models of a hub as window and command line ask for them; each call is an operation and waits for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tunesmith_core import paths
from tunesmith_core.downloads import Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.files import private_folder
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.model_folder import is_hub_id, local_folder
from tunesmith_core.operations.kinds.hub import DOWNLOAD, FACTS, SEARCH, HubSpec, SearchSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.protocol import Event
from tunesmith_core.spec_sections import ModelSpec

OnEvent = Callable[[Event], object]


def search(wanted: SearchSpec, cancel: threading.Event | None = None) -> list[HubModel]:
    """Return the models of the hub that fit, the most downloaded first.

    Raises:
        TunesmithError: what the hub or the network did. KeyboardInterrupt: when it was cancelled.
    """
    return [HubModel.from_dict(each) for each in conduct(SEARCH, wanted, cancel=cancel).get()]


def look_up(hub_id: str, revision: str = "", cancel: threading.Event | None = None) -> Download:
    """Return what a download would bring: facts, files, sizes. See `search` for the errors."""
    answer = conduct(FACTS, HubSpec(checked_id(hub_id), revision), cancel=cancel).get()
    return Download(HubModel.from_dict(answer), hub_id, revision)


def get(
    hub_id: str,
    revision: str = "",
    *,
    on_event: OnEvent = lambda _event: None,
    cancel: threading.Event | None = None,
) -> Path:
    """Download a model, or what is missing of it, and return its folder.

    Args:
        hub_id: of the model.
        revision: of it; "" for the newest.
        on_event: called with each event: `plan`, `progress`, `waiting`.
        cancel: once set, it ends; what arrived is kept, and the next call continues.

    Raises:
        TunesmithError: what the hub, the network or the disk did. KeyboardInterrupt: when it was cancelled.
    """
    private_folder(paths.models_dir())
    spec = HubSpec(checked_id(hub_id), revision)
    return Path(conduct(DOWNLOAD, spec, on_event=on_event, cancel=cancel).get())


def fetch_base_model(model: ModelSpec, on_event: OnEvent) -> None:
    """Download the base model of a run unless it is on this computer. See `get` for the errors."""
    if local_folder(model.path, model.revision) is None:
        get(model.path, model.revision, on_event=on_event)


def checked_id(text: str) -> str:
    """Return a text that is a hub id. Raises UserError `hub-not-found` for any other."""
    if not is_hub_id(text) or ".." in text:
        raise TunesmithError("hub-not-found", "{id} is not a hub id such as org/name.", id=text)
    return text
