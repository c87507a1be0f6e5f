"""The reward model of a run that learns from rewards: a run that learned to score answers, or a model made for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.exports import chosen_weights
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import base_folder
from tunesmith_core.model_json import read_object
from tunesmith_core.runs import HEADERS, Run
from tunesmith_core.spec import RunSpec

HEADED = "ForSequenceClassification"
"""How transformers calls models that rate texts, behind the name of their kind."""

ADAPTER = "adapter"
"""The folder of a run in which its adapter is."""


SPEC_NAME = HEADERS[0]


@dataclass(frozen=True, slots=True)
class RewardModel:
    """Where a reward model is.

    Attributes:
        path: as a person named it.
        folder: of the whole model, of a run that of its base model.
        run: that trained its adapter and head; None where the folder holds all.
        spec: of that run.
    """

    path: Path
    folder: Path
    run: Run | None = None
    spec: RunSpec | None = None


def find(path: str) -> RewardModel:
    """Return the reward model in a folder: of a run, of its adapter, or of a whole model.

    Raises:
        UserError: `reward-failed` names what it is instead; what `base_folder` finds.
    """
    folder = Path(path)
    if folder.name == ADAPTER and (folder.parent / SPEC_NAME).is_file():
        folder = folder.parent
    if (folder / SPEC_NAME).is_file():
        run = Run(folder)
        spec = run.load_spec()
        if spec.objective.kind != "reward":
            raise _failed(Message("{path}: this run did not learn to score answers."), path)
        try:
            chosen_weights(run, 0)
        except UserError as error:
            raise _failed(Message("{path}: this run has not learned anything yet."), path) from error
        return RewardModel(folder, base_folder(spec.model.path, spec.model.revision), run, spec)
    if not (folder / "config.json").is_file():
        raise _failed(Message("{path}: there is no reward model in this folder."), path)
    config = read_object(folder / "config.json")
    kinds = config.get("architectures")
    names = kinds if isinstance(kinds, list) else []
    if not any(str(name).endswith(HEADED) for name in names):
        raise _failed(Message("{path}: this model writes texts and does not score them."), path)
    num = len(config.get("id2label") or ()) or int(config.get("num_labels") or 2)
    if num != 1:
        words = Message("{path}: this model sorts texts into {num} classes and does not score them.")
        raise _failed(words, path, num)
    return RewardModel(folder, folder)


def check_alike(model: RewardModel, spec: RunSpec, folder: Path) -> None:
    """Check that a reward model reads what the trained model writes, as far as files tell.

    Args:
        model: that scores.
        spec: of the run that learns from it.
        folder: of the model that it trains.

    Raises:
        UserError: `reward-failed`.
    """
    if vocabulary(model.folder) != vocabulary(folder):
        raise _failed(Message("{path}: the reward model has other tokens than the model that is trained."), model.path)
    theirs, ours = template_of(model.folder, model.spec), template_of(folder, spec)
    if ours and not theirs:
        raise _failed(Message("{path}: the reward model has no chat template."), model.path)
    if ours != theirs:
        words = Message("{path}: the reward model has another chat template than the model that is trained.")
        raise _failed(words, model.path)


def vocabulary(folder: Path) -> object:
    """Return what tells the tokens of a model folder: numbers by text where they are readable, else a file's bytes."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        model = folder / "tokenizer.model"
        return model.read_bytes() if model.is_file() else None
    try:
        values: Any = json.loads(path.read_bytes())  # Any: JSON values
        added = {each["content"]: each["id"] for each in values.get("added_tokens") or ()}
        return values["model"]["vocab"], added
    except (ValueError, KeyError, TypeError, RecursionError):
        return path.read_bytes()


def template_of(folder: Path, spec: RunSpec | None) -> object:
    """Return the chat template of a model as a run uses it: its text, the name of another one, or None."""
    if spec is not None and spec.model.chat_template != "own":
        return spec.model.chat_template
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace").strip()
    config = folder / "tokenizer_config.json"
    text = read_object(config).get("chat_template") if config.is_file() else None
    return text.strip() if isinstance(text, str) else text


def _failed(words: Message, path: object, num: int = 0) -> TunesmithError:
    hint = Message("Choose the folder of a run that learned to score answers, of its export, or of another such model.")
    return TunesmithError("reward-failed", words.template, hint=hint, path=path, num=num)
