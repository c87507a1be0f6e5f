"""A model hub as huggingface_hub sees it: what is there, and what is in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import httpx2
from huggingface_hub import HfApi, ModelInfo, constants, get_session, hf_hub_url, set_client_factory
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status
from huggingface_hub.utils._http import hf_request_event_hook

from tunesmith_core.environments import MODELSCOPE_VARIABLE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import CARD_NAME, HubFile, HubModel
from tunesmith_core.model_config import language_part
from tunesmith_core.model_library import CONTEXT_NAMES
from tunesmith_engine.hub.attempts import ASKING, Attempts, Retry, WrongAnswer

MOST_CONFIG_BYTES = 1 << 20
MOST_CARD_BYTES = 1 << 17
EXPANDED = ("downloads", "lastModified", "safetensors", "tags", "gated", "private", "config", "library_name", "sha")
"""What a search asks to be told of each model."""


class Hub:
    """A hub.

    Args:
        endpoint: its address; "" for the one of HF_ENDPOINT, else Hugging Face's.
        token: of the person; None for the one in HF_TOKEN or of huggingface_hub's own log-in.
        retry: how long the network is waited for; None for as long as a question may take.
        stop: ends every wait.
        on_wait: called with the error and the seconds before each wait.

    Attributes:
        endpoint: its address.
    """

    def __init__(
        self,
        endpoint: str = "",
        token: str | None = None,
        retry: Retry | None = None,
        stop: threading.Event | None = None,
        on_wait: Callable[[TunesmithError, float], object] = lambda _error, _pause_s: None,
    ) -> None:
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self.retry = retry or ASKING
        self.stop, self._on_wait, self._token = stop or threading.Event(), on_wait, token
        self._api = HfApi(endpoint=self.endpoint, token=token)
        set_client_factory(self._client)

    def _client(self) -> httpx2.Client:
        # As the library's own, which waits forever for a server that stalls. Redirects to another host lose the token.
        return httpx2.Client(
            event_hooks={"request": [hf_request_event_hook]}, follow_redirects=True, timeout=self.retry.timeout
        )

    def attempts(self, about: str) -> Attempts:
        """Return a new count of what fails."""
        return Attempts(self.retry, about, self.page(about), self.stop, self._on_wait)

    def search_attempts(self) -> Attempts:
        """Return the same for a search, which is about the hub itself."""
        return Attempts(self.retry, self.endpoint, self.endpoint, self.stop, self._on_wait)

    def page(self, hub_id: str) -> str:
        """Return the address of a repository for people."""
        return f"{self.endpoint}/{hub_id}"

    def file_url(self, model: HubModel, name: str) -> str:
        """Return the address of a file at the commit of the facts."""
        return hf_hub_url(model.id, name, revision=model.commit, endpoint=self.endpoint)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request for a file, the token among them."""
        # Compressed on the way, the bytes would not be those of the file, nor could they be asked for by number.
        return {**build_hf_headers(token=self._token), "Accept-Encoding": "identity"}

    def search(
        self,
        text: str = "",
        *,
        family: str = "",
        licence: str = "",
        smallest: float = 0.0,
        largest: float = 0.0,
        limit: int = 30,
    ) -> list[HubModel]:
        """Return models for text generation in safetensors files, the most downloaded first.

        Args:
            text: in their names.
            family: of the model, as config.json calls it, such as "qwen3".
            licence: as the hub calls it, such as "apache-2.0".
            smallest: number of parameters in billions, 0 for any.
            largest: the same.
            limit: how many at most.
        """
        wanted = ["safetensors", *([family] if family else []), *([f"license:{licence}"] if licence else [])]
        bounds = [f"min:{smallest:g}B" if smallest else "", f"max:{largest:g}B" if largest else ""]
        asked = {
            "search": text,
            "filter": wanted,
            "pipeline_tag": "text-generation",
            "num_parameters": ",".join(filter(None, bounds)),
            "sort": "downloads",
            "limit": limit,
            "expand": list(EXPANDED),
        }
        asked = {name: value for name, value in asked.items() if value}

        def request() -> list[HubModel]:
            # The library's `list_models` tries five times more by itself, with pauses of up to 8 seconds.
            response = get_session().get(
                f"{self.endpoint}/api/models", params=asked, headers=build_hf_headers(token=self._token)
            )
            hf_raise_for_status(response)
            return [self._listed(item) for item in response.json()]

        return self.search_attempts().run(request)

    def _listed(self, item: Any) -> HubModel:  # Any: JSON values
        try:
            return self._read(ModelInfo(**{"siblings": None} | item), {})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WrongAnswer from error

    def facts(self, hub_id: str, revision: str = "") -> HubModel:
        """Return what the hub says of a repository; one that was renamed is followed.

        Raises:
            TunesmithError: what the network did, see `attempts.explained`.
        """

        def request() -> tuple[Any, HubModel]:  # Any: the library's ModelInfo
            info = self._api.model_info(
                hub_id, revision=revision or None, files_metadata=True, timeout=self.retry.stall_s
            )
            return info, self._facts(info, {})

        info, model = self.attempts(hub_id).run(request)
        if not any(file.path == "config.json" and file.size_bytes <= MOST_CONFIG_BYTES for file in model.files):
            return model
        return self._facts(info, self._config(model))

    def card(self, hub_id: str, revision: str = "") -> str:
        """Return the text of README.md, "" where there is none or it may not be read. See `facts` for the errors."""
        return self._card_at(hf_hub_url(hub_id, CARD_NAME, revision=revision or None, endpoint=self.endpoint), hub_id)

    def _card_at(self, url: str, hub_id: str) -> str:
        def request() -> bytes:
            with get_session().stream("GET", url, headers=self.headers()) as response:
                hf_raise_for_status(response)
                return next(response.iter_bytes(MOST_CARD_BYTES), b"")

        try:
            return self.attempts(hub_id).run(request).decode("utf-8", "replace")
        except TunesmithError as error:
            if error.code in ("hub-gated-401", "hub-not-found"):
                return ""
            raise

    def _config(self, model: HubModel) -> dict[str, Any]:  # Any: JSON values
        """Return config.json, {} where it may not be read yet: a gated model still tells its size."""

        def request() -> Any:  # Any: JSON values
            response = get_session().get(self.file_url(model, "config.json"), headers=self.headers())
            hf_raise_for_status(response)
            return response.json()

        try:
            config = self.attempts(model.id).run(request)
        except TunesmithError as error:
            if error.code in ("hub-gated-401", "hub-not-found"):
                return {}
            raise
        return config if isinstance(config, dict) else {}

    def _facts(self, info: Any, config: dict[str, Any]) -> HubModel:  # Any: the library's ModelInfo, JSON values
        try:
            return self._read(info, config)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WrongAnswer from error

    def _read(self, info: Any, config: dict[str, Any]) -> HubModel:  # Any: the library's ModelInfo, JSON values
        known, text = info.config or {}, language_part(config) if config else {}
        tensors = info.safetensors
        tokenizer = known.get("tokenizer_config") or {}
        lengths = (value for value in map(text.get, CONTEXT_NAMES) if isinstance(value, int) and value > 0)
        names = [each.rfilename for each in info.siblings or ()]
        return HubModel(
            id=str(info.id),
            commit=str(info.sha or ""),
            page=self.page(info.id),
            files=tuple(map(_file, info.siblings or ())),
            licence=_licence(info),
            gated=info.gated or "",
            private=bool(info.private),
            model_type=str(config.get("model_type") or known.get("model_type") or ""),
            num_parameters=int(tensors.total) if tensors else 0,
            dtype=max(tensors.parameters, key=tensors.parameters.__getitem__, default="") if tensors else "",
            context_length=next(lengths, 0),
            has_chat_template="chat_template" in tokenizer or "chat_template.jinja" in names,
            downloads=int(info.downloads or 0),
            modified=info.last_modified.isoformat() if info.last_modified else "",
        )


def _file(sibling: Any) -> HubFile:  # Any: the library's RepoSibling
    sha256 = str(sibling.lfs.sha256) if sibling.lfs else ""
    return HubFile(str(sibling.rfilename), int(sibling.size or 0), sha256, "" if sha256 else str(sibling.blob_id or ""))


def _licence(info: Any) -> str:  # Any: the library's ModelInfo
    card = info.card_data
    named = (card.get("license_name") or card.get("license")) if card else None
    tagged = next((tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")), "")
    return named if isinstance(named, str) else tagged


def chosen_hub(**arguments: Any) -> Hub:  # Any: as Hub takes them
    """Return the hub of the settings; see `Hub` for the arguments."""
    from tunesmith_engine.hub.modelscope import ModelScope

    address = os.environ.get(MODELSCOPE_VARIABLE, "")
    return ModelScope(**{"endpoint": address} | arguments) if address else Hub(**arguments)
