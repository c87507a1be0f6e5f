"""The product of full fine-tuning: a transformers folder like the base model's, published as a whole."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from tunesmith_core import files
from tunesmith_core.chat_templates import OWN
from tunesmith_core.errors import TunesmithError
from tunesmith_core.folder_switch import switch_folder
from tunesmith_core.spec import RunSpec
from tunesmith_engine.export.merged_model import CARD_NAME, MergedModel, write_chat_template
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.staging import Staging
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.vocabulary import words_of


def save_full_model(
    model: FullModel, spec: RunSpec, base: Path, tokenizer: Any, card: str, target: Path, tmp: Path
) -> dict[str, str]:  # Any: a transformers tokenizer
    """Write the files of the base model with the trained weights in them, in the base model's own number formats.

    Args:
        model: the trained model.
        spec: of the run.
        base: folder of the base model, whose names, tokenizer and settings the result takes over.
        tokenizer: with the chat template that was trained.
        card: text of README.md.
        target: the folder to be; an earlier one is replaced.
        tmp: folder on the same volume for the staging folder.

    Returns:
        What a person should know before they load it: nothing.

    Raises:
        RunFailure: `nan-loss` for a weight that is not finite, `adapter-not-restored` when a file does not hold what
            was trained.
        EnvironmentProblem: `disk-full` when the space does not suffice.
        OSError: as the file system says; an earlier folder is still in its place then.
    """
    tmp.mkdir(exist_ok=True)
    place = tmp / f"model-{uuid.uuid4().hex[:8]}"
    # The folder may go to others, so nothing in it tells paths of this computer.
    staging = Staging(place, {"format": "full"})
    try:
        merged = MergedModel(base, lambda shapes: Merging(model, shapes))
        merged.write(staging, lambda _: None)
        if words_of(spec):
            tokenizer.save_pretrained(staging.folder)
        if spec.model.chat_template != OWN:
            write_chat_template(tokenizer, staging.folder)
        files.atomic_write_text(staging.folder / CARD_NAME, card)
        _ensure_written(merged, staging.folder)
        files.crashpoint("export.before-switch")
        staging.publish()
        switch_folder(place, target)
    finally:
        for folder in (staging.folder, place):
            shutil.rmtree(folder, ignore_errors=True)
    return {}


def _ensure_written(merged: MergedModel, folder: Path) -> None:
    """Read every trained weight back and compare it to the bit."""
    for shard, weights in merged.files.items():
        with safe_open(folder / shard, framework="pt") as opened:
            for name, weight in weights.items():
                if not merged.changes(weight):
                    continue
                written = opened.get_tensor(name)
                wanted = merged.read(weight).to(written.dtype)
                if not torch.equal(written, wanted):
                    raise TunesmithError(
                        "adapter-not-restored",
                        "{path} does not hold the trained weight {name}.",
                        hint="Resume the run, which saves its result again.",
                        path=shard,
                        name=name,
                    )
