"""ModelScope, a second hub: its listing with hashes, its files, its search. No token is sent to it.

Its documented addresses: `openapi/v1/models` for a search, `api/v1/models/ID/repo/files` for the files with their
hashes, `models/ID/resolve/REVISION/NAME` for a file. A revision that it does not know is an answer without files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from huggingface_hub import get_session
from huggingface_hub.utils import hf_raise_for_status

from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import HubFile, HubModel
from tunesmith_core.model_config import language_part
from tunesmith_core.model_library import CONTEXT_NAMES
from tunesmith_engine.hub.attempts import Attempts, WrongAnswer
from tunesmith_engine.hub.client import Hub

Result = TypeVar("Result")

MOST_FOUND = 50
"""What one page of its search holds."""

CONFIG_NAME, CONFIG_BYTES = "config.json", 1 << 20


class ModelScope(Hub):
    """The hub with the addresses and answers of ModelScope."""

    def page(self, hub_id: str) -> str:
        """Return the address of a repository for people."""
        return f"{self.endpoint}/models/{hub_id}"

    def file_url(self, model: HubModel, name: str) -> str:
        """Return the address of a file at the commit of the facts."""
        return self._url(model.id, model.commit, name)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request; the access token belongs to another hub."""
        return {"Accept-Encoding": "identity"}

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
        """Return models, the most downloaded first.

        Its search takes words only; the rest is looked for in what it finds. See `Hub.search` for the arguments.
        """
        words = {"search": " ".join(filter(None, (text, family))), "page_number": 1, "page_size": MOST_FOUND}
        found: list[HubModel] = self._ask(
            f"openapi/v1/models?{urlencode(words | {'sort': 'downloads'})}",
            self.search_attempts(),
            lambda answer: [_found(each, self.page(str(each["id"]))) for each in answer["data"]["models"]],
        )
        fitting = (
            model
            for model in found
            if (not licence or model.licence.casefold() == licence)
            and smallest * 1e9 <= model.num_parameters <= (largest * 1e9 or float("inf"))
        )
        return list(fitting)[:limit]

    def facts(self, hub_id: str, revision: str = "") -> HubModel:
        """Return what the hub says of a repository. See `Hub.facts` for the errors."""
        wanted = revision or "master"
        listing = f"api/v1/models/{hub_id}/repo/files?{urlencode({'Revision': wanted, 'Recursive': 'true'})}"
        files, commit = self._ask(listing, self.attempts(hub_id), _listed)
        if not files:
            raise TunesmithError("hub-not-found", "{id} has no such revision.", link=self.page(hub_id), id=hub_id)
        licence, num_downloads = self._ask(f"api/v1/models/{hub_id}", self.attempts(hub_id), _about)
        config = self._config_of(hub_id, wanted, files)
        text = language_part(config) if config else {}
        lengths = (value for value in map(text.get, CONTEXT_NAMES) if isinstance(value, int) and value > 0)
        return HubModel(
            id=hub_id,
            commit=commit or wanted,
            page=self.page(hub_id),
            files=files,
            licence=licence,
            model_type=str(config.get("model_type") or ""),
            dtype=str(text.get("dtype") or text.get("torch_dtype") or ""),
            context_length=next(lengths, 0),
            has_chat_template=any(file.path == "chat_template.jinja" for file in files),
            downloads=num_downloads,
        )

    def card(self, hub_id: str, revision: str = "") -> str:
        """Return the text of README.md, "" where there is none."""
        return self._card_at(self._url(hub_id, revision or "master", "README.md"), hub_id)

    def _url(self, hub_id: str, revision: str, name: str) -> str:
        return f"{self.endpoint}/models/{hub_id}/resolve/{quote(revision, safe='')}/{quote(name)}"

    def _config_of(self, hub_id: str, revision: str, files: tuple[HubFile, ...]) -> dict[str, Any]:  # Any: JSON values
        if not any(file.path == CONFIG_NAME and file.size_bytes <= CONFIG_BYTES for file in files):
            return {}
        path = f"models/{hub_id}/resolve/{quote(revision, safe='')}/{CONFIG_NAME}"
        return self._ask(path, self.attempts(hub_id), dict)

    def _ask(self, path: str, attempts: Attempts, read: Callable[[Any], Result]) -> Result:  # Any: JSON values
        """Return what is read from an answer, tried again as often as makes sense."""

        def request() -> Result:
            response = get_session().get(f"{self.endpoint}/{path}", headers=self.headers())
            hf_raise_for_status(response)
            try:
                return read(response.json())
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise WrongAnswer from error

        return attempts.run(request)


def _found(item: dict[str, Any], page: str) -> HubModel:  # Any: JSON values
    return HubModel(
        id=str(item["id"]),
        commit="",
        page=page,
        licence=str(item.get("license") or "").casefold(),
        gated="auto" if item.get("gated") else "",
        private=bool(item.get("private")),
        num_parameters=int(item.get("params") or 0),
        downloads=int(item.get("downloads") or 0),
    )


def _file(item: dict[str, Any]) -> HubFile:  # Any: JSON values
    return HubFile(str(item["Path"]), int(item.get("Size") or 0), str(item.get("Sha256") or ""))


def _listed(answer: dict[str, Any]) -> tuple[tuple[HubFile, ...], str]:  # Any: JSON values
    """Return files and newest commit, "" where no file has changed in it: the listing tells its beginning only."""
    data = answer["Data"]
    listed = data["Files"] or []
    files = tuple(_file(each) for each in listed if each.get("Type") != "tree")
    short = str((data.get("LatestCommitter") or {}).get("ShortId") or "")
    revisions = (str(each.get("Revision") or "") for each in listed)
    return files, next((each for each in revisions if short and each.startswith(short)), "")


def _about(answer: dict[str, Any]) -> tuple[str, int]:  # Any: JSON values
    data = answer["Data"]
    licence = str(data.get("License") or "").casefold().replace("license ", "").replace(" ", "-")
    return licence, int(data.get("Downloads") or 0)
