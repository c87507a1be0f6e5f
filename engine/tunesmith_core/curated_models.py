"""The list of models that ships with the program, and what a person's own list in the folder of settings adds to it.

Its facts are those of the models' own cards at its date; what the hub says about a model counts more.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files, json_values, paths
from tunesmith_core.errors import TunesmithError

LIST_NAME = "curated.json"
VERSION = 1
INSTRUCT = "instruct"
"""The word for models that follow instructions."""


@dataclass(frozen=True, slots=True)
class CuratedModel:
    """A model of the list; what is not known for certain is 0 or "".

    Attributes:
        num_parameters: as the hub counts those of its files.
        model_type: what config.json calls the family.
        instruct: whether it follows instructions although its name does not say so.
        gated: whether its license has to be accepted on the hub.
    """

    id: str
    family: str = ""
    year: int = 0
    num_parameters: int = 0
    licence: str = ""
    context_length: int = 0
    model_type: str = ""
    instruct: bool = False
    gated: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """Where a word that is searched for may be."""
        return self.id, self.family, self.licence, INSTRUCT if self.instruct else ""


@dataclass(frozen=True, slots=True)
class CuratedList:
    """The list.

    Attributes:
        date: on which the facts of ours were looked up.
        models: the person's own first.
        problem: why a person's list could not be read, None where it could or there is none.
    """

    date: str
    models: tuple[CuratedModel, ...]
    problem: TunesmithError | None = None


def has_words(text: str, *places: str) -> bool:
    """Return whether each word of a text is in one of the places, whatever the case and the separators."""
    squashed = [_squashed(place) for place in places]
    return all(any(_squashed(word) in place for place in squashed) for word in text.split())


def _squashed(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def own_list_path() -> Path:
    """Return where a person's list is."""
    return paths.config_dir() / LIST_NAME


def curated_models() -> CuratedList:
    """Return the person's models and ours; where both have one, the person's counts."""
    values = files.read_json(paths.package_folder("tunesmith_assets") / "models" / LIST_NAME)
    own, problem = dict[str, CuratedModel](), None
    try:
        own = _models(files.read_json(own_list_path()))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        problem = TunesmithError(
            "file-unreadable",
            "Your list of models is not what a list has to be: {path}",
            hint="Correct the file, or delete it. The list of Tunesmith is used meanwhile.",
            path=own_list_path(),
        )
    return CuratedList(str(values["date"]), tuple((own | (_models(values) | own)).values()), problem)


def _models(values: Any) -> dict[str, CuratedModel]:  # Any: JSON values
    """Return the models of a list by their ids. Raises what a value of another kind raises."""
    if values["version"] != VERSION:
        raise ValueError("a list of another version")
    found = (json_values.read(CuratedModel, each) for each in values["models"])
    return {model.id: model for model in found}
