"""The product of a run: a PEFT adapter folder that plain PEFT loads, published as a whole."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from peft import PeftModel

from tunesmith_core import files


def export_adapter(model: PeftModel, tokenizer: Any, card: str, target: Path, tmp: Path) -> None:
    """Write adapter, tokenizer and card into a folder beside nothing else.

    Args:
        model: the trained model.
        tokenizer: the base model's tokenizer, which chats with the adapter need.
        card: text of README.md.
        target: the folder to be; an earlier one is replaced.
        tmp: folder on the same volume for the staging folder.

    Raises:
        OSError: as the file system says; an earlier adapter stands then.
    """
    tmp.mkdir(exist_ok=True)
    staging = tmp / f"adapter-{uuid.uuid4().hex[:8]}"
    trash = tmp / f"trash-{uuid.uuid4().hex[:8]}"
    try:
        # "auto" would ask the hub for the base model's vocabulary; the embedding is never trained here.
        model.save_pretrained(staging, safe_serialization=True, save_embedding_layers=False)
        tokenizer.save_pretrained(staging)
        files.atomic_write_text(staging / "README.md", card)
        for path in staging.rglob("*"):
            if path.is_file():
                files.fsync_file(path)
        if target.exists():
            files.replace(target, trash)
        files.publish_folder(staging, target)
    finally:
        for folder in (staging, trash):
            shutil.rmtree(folder, ignore_errors=True)
