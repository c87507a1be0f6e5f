"""What a model hub is asked for; `tunesmith_engine.operations` holds what is done.

A download that is stopped keeps what arrived, and the same operation continues it: that is how one is paused. To give
it up, `downloads.discard` deletes what arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.operations.kind import AbsolutePath, Kind


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """What is looked for.

    Attributes:
        text: in the names of models.
        family: as config.json calls it, such as "qwen3".
        licence: as the hub calls it, such as "apache-2.0".
        smallest: number of parameters in billions, 0 for any.
        largest: the same.
        limit: how many at most.
    """

    text: str = ""
    family: str = ""
    licence: str = ""
    smallest: float = 0.0
    largest: float = 0.0
    limit: int = 30


@dataclass(frozen=True, slots=True)
class HubSpec:
    """A repository of a hub; revision "" is the newest."""

    id: str
    revision: str = ""


@dataclass(frozen=True, slots=True)
class PushSpec:
    """An export and the repository that it becomes.

    Attributes:
        folder: of the export.
        id: OWNER/NAME.
        public: whether everybody may see it.
    """

    folder: AbsolutePath
    id: str
    public: bool = False


SEARCH = Kind(
    name="search-hub",
    title="Searching the model hub",
    spec=SearchSpec,
    function="tunesmith_engine.operations:search_hub",
    asks_hub=True,
)
FACTS = Kind(
    name="hub-facts",
    title="Looking at a model of the hub",
    spec=HubSpec,
    function="tunesmith_engine.operations:hub_facts",
    asks_hub=True,
)
CARD = Kind(
    name="hub-card",
    title="Reading the card of a model",
    spec=HubSpec,
    function="tunesmith_engine.operations:hub_card",
    asks_hub=True,
)
DOWNLOAD = Kind(
    name="download",
    title="Downloading a model",
    cut_short="What has arrived is kept. The download continues when Tunesmith opens again.",
    spec=HubSpec,
    function="tunesmith_engine.operations:download",
    asks_hub=True,
    # Ending the process loses nothing: what has arrived stays on the disk.
    grace_s=5.0,
)
PUSH = Kind(
    name="push",
    title="Uploading to the model hub",
    cut_short="What has arrived at the hub need not be sent again. Start the upload again later.",
    spec=PushSpec,
    function="tunesmith_engine.operations:push",
    asks_hub=True,
    # Ending the process loses nothing: what has arrived need not be sent again.
    grace_s=5.0,
)
