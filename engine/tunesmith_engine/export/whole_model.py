"""A saved adapter in the class of the larger model that its language model was taken out of, such as one that sees."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import PeftConfig, PeftModel, load_peft_weights

from tunesmith_engine.export.restoring import PREFIX, restored_parameters, same
from tunesmith_engine.model.heads import has_head
from tunesmith_engine.model.load import load_config
from tunesmith_engine.model.lora import trainable


@dataclass(frozen=True, slots=True)
class WholeModel:
    """The class that config.json names where another one was trained.

    Attributes:
        name: of the class in transformers.
        key_mapping: the argument with which PEFT restores the adapter there; empty where it can't.
    """

    name: str
    key_mapping: Mapping[str, str]


def whole_model_of(model: PeftModel, folder: Path) -> WholeModel | None:
    """Return the larger model of an adapter; None where the trained class is the one that config.json names, or rates.

    The targets in the saved config get the names of both classes. Names are only returned if PEFT restores every weight
    by them, equal to the bit.
    """
    base = model.get_base_model()
    if has_head(base):
        return None
    config = load_config(Path(base.name_or_path))
    name = next(iter(config.architectures or []), "")
    try:
        kind = getattr(transformers, name, None)
    except ImportError:
        return WholeModel(name, {})
    parts = {key.removeprefix(PREFIX).partition(".")[0] for key in trainable(model)}
    if not isinstance(kind, type) or isinstance(base, kind):
        return None
    if any(type(base.get_submodule(part)) is kind for part in parts):
        return None
    own = PeftConfig.from_pretrained(folder)
    try:
        mapping = _proven_mapping(model, parts, folder, kind, config)
    except Exception:
        # Libraries of the larger model may be missing here, those for pictures for one. The adapter is right anyway.
        mapping = {}
    if not mapping:
        own.save_pretrained(str(folder))
    return None if mapping is None else WholeModel(name, mapping)


def _proven_mapping(
    model: PeftModel,
    parts: Collection[str],
    folder: Path,
    kind: Any,  # Any: a class of transformers models
    config: Any,  # Any: its config
) -> dict[str, str] | None:
    """Return the names by which a larger model restores every weight, {} for none, None where it needs no others."""
    places = _places(model.get_base_model(), parts, kind, config)
    if all(place == part for part, place in places.items()):
        return None
    mapping = {f"^{re.escape(part)}\\.": f"{place}." for part, place in places.items() if place}
    _name_targets_twice(folder, mapping)
    weights = load_peft_weights(str(folder), device="cpu", key_mapping=mapping)
    trained = {PREFIX + _renamed(key.removeprefix(PREFIX), mapping): value for key, value in trainable(model).items()}
    restored = restored_parameters(kind, config, folder, weights, trained)
    return mapping if all(same(value, restored.get(key)) for key, value in trained.items()) else {}


def _places(
    base: Any,  # Any: a transformers model
    parts: Collection[str],
    kind: Any,  # Any: a class of transformers models
    config: Any,  # Any: its config
) -> dict[str, str]:
    """Return where the larger model keeps parts of a language model, found by their type; "" for one not found once."""
    with torch.device("meta"):
        larger = kind(config)
    places = {}
    for part in parts:
        module = base.get_submodule(part)
        found = [name for name, other in larger.named_modules() if type(other) is type(module)]
        places[part] = found[0] if len(found) == 1 else ""
    return places


def _renamed(name: str, mapping: Mapping[str, str]) -> str:
    for pattern, replacement in mapping.items():
        name = re.sub(pattern, replacement, name)
    return name


def _name_targets_twice(folder: Path, mapping: Mapping[str, str]) -> None:
    """Let the saved config name its targets as the language model and as the whole model call them."""
    config = PeftConfig.from_pretrained(folder)
    for role in ("target_modules", "target_parameters", "exclude_modules"):
        names = getattr(config, role)
        if names and not isinstance(names, str):
            setattr(config, role, sorted({*names, *(_renamed(name, mapping) for name in names)}))
    config.save_pretrained(str(folder))
