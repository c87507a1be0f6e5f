"""What the library has on its shelf, looked at on a worker thread, and what is said about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import model_library, paths
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.hub_repository import GGUF
from tunesmith_core.model_library import Shelved
from tunesmith_core.runs import Run, display_name
from tunesmith_gui.models.model_words import (
    context_text,
    license_text,
    parameters_text,
    parts_text,
    template_text,
)
from tunesmith_gui.tr import core_text, fill, listed, size, translate

MOST_RUNS = 3
"""So many runs are named beside a model; of more, their number."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A model on this computer.

    Attributes:
        fits: the planner's verdict on this card, by method.
        runs: names of the runs whose base model it is, by their ids.
    """

    model: Shelved
    fits: Mapping[str, str]
    runs: Mapping[str, str]

    @property
    def is_ours(self) -> bool:
        """Whether Tunesmith keeps it."""
        return self.model.keeper == "tunesmith"

    @property
    def is_gguf(self) -> bool:
        """Whether it is a file for answering, which has to be imported before it can be trained."""
        return self.model.card is None and self.model.problem is None


@dataclass(frozen=True, slots=True)
class Shelf:
    """Every model on this computer, and the device that it would be trained on."""

    own: tuple[Placed, ...]
    foreign: tuple[Placed, ...]
    hardware: Hardware

    def trainable(self, listed: Iterable[str]) -> dict[str, Placed]:
        """Return the models that can be trained, by hub id.

        Args:
            listed: ids of the curated list. A model that came without a record, as the example's does, is known by
                the name that such an id ends in.
        """
        names = {hub_id.rpartition("/")[2]: hub_id for hub_id in listed}
        found = dict[str, Placed]()
        for each in (*self.foreign, *self.own):
            record, name = each.model.download, each.model.name
            if record is not None:
                found[record.asked] = each
            elif not each.is_gguf and each.model.problem is None:
                found[names.get(name, name) if each.is_ours else name] = each
        return found


def look_around() -> Shelf:
    """Return what is on this computer."""
    hardware = model_library.training_hardware(detect_hardware())
    named = model_library.base_models()

    def placed(model: Shelved) -> Placed:
        ids = model_library.users(model, named)
        runs = {each: display_name(Run(paths.runs_dir() / each)) for each in ids}
        return Placed(model, model_library.fits(model.card, hardware) if model.card else {}, runs)

    own = tuple(map(placed, model_library.own_models()))
    return Shelf(own, tuple(map(placed, model_library.foreign_models())), hardware)


def facts_words(placed: Placed) -> str:
    """Size, license, context and chat template in one line."""
    model = placed.model
    card = model.card
    if card is None:
        return parts_text(_kind_words(model.path) if placed.is_gguf else "", size(model.size_bytes))
    return parts_text(
        parameters_text(card.num_parameters),
        size(model.size_bytes),
        license_text(card.licence),
        context_text(model.context_length),
        template_text(card.has_chat_template),
    )


def _kind_words(path: Path) -> str:
    return translate("Shelf", "GGUF file") if path.suffix == GGUF else translate("Shelf", "GGUF")


def problem_words(placed: Placed) -> str:
    """Why it can't be trained, "" when it can; its files are named without the folder."""
    problem = placed.model.problem
    if problem is None:
        return ""
    said = core_text(problem.message).replace(f"{placed.model.path}{os.sep}", "")
    words = fill(translate("Shelf", "Can't be trained. %1"), said)
    return f"{words}\n{core_text(problem.hint)}" if placed.is_ours else words


def notes_words(placed: Placed) -> str:
    """Who uses it and who keeps it, a line each."""
    return "\n".join(filter(None, (runs_words(placed), keeper_words(placed))))


def keeper_words(placed: Placed) -> str:
    """Which program keeps a model that is not ours."""
    return {
        "tunesmith": "",
        "huggingface": translate("Shelf", "Kept by the Hugging Face cache"),
        "lm-studio": translate("Shelf", "Kept by LM Studio"),
        "ollama": translate("Shelf", "Kept by Ollama"),
    }[placed.model.keeper]


def runs_words(placed: Placed) -> str:
    """Which runs use it, "" when none."""
    names = list(placed.runs.values())
    if not names:
        return ""
    if len(names) <= MOST_RUNS:
        return fill(translate("Shelf", "Used by %1"), listed(names))
    return fill(translate("Shelf", "Used by %1 and %2 more"), listed(names[:MOST_RUNS]), len(names) - MOST_RUNS)
