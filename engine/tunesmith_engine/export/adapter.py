"""The product of a run: a PEFT adapter folder that plain PEFT loads, published as a whole."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from peft import PeftModel

from tunesmith_core import files
from tunesmith_engine.export.restoring import ensure_restored, whole_model_names


def export_adapter(model: PeftModel, tokenizer: Any, card: str, target: Path, tmp: Path) -> None:
    """Write adapter, tokenizer and card into a folder beside nothing else.

    Args:
        model: the trained model.
        tokenizer: the base model's tokenizer, which chats with the adapter need.
        card: text of README.md.
        target: the folder to be; an earlier one is replaced.
        tmp: folder on the same volume for the staging folder.

    Raises:
        RunFailure: `adapter-not-restored` when plain PEFT would not restore every trained weight.
        OSError: as the file system says; an earlier adapter stands then.
    """
    tmp.mkdir(exist_ok=True)
    staging = tmp / f"adapter-{uuid.uuid4().hex[:8]}"
    trash = tmp / f"trash-{uuid.uuid4().hex[:8]}"
    try:
        # "auto" would ask the hub for the base model's vocabulary; the embedding is never trained here.
        model.save_pretrained(staging, safe_serialization=True, save_embedding_layers=False)
        ensure_restored(model, staging)
        tokenizer.save_pretrained(staging)
        files.atomic_write_text(staging / "README.md", card + _use_in_whole_model(model))
        for path in staging.rglob("*"):
            if path.is_file():
                files.fsync_file(path)
        if target.exists():
            files.replace(target, trash)
        files.publish_folder(staging, target)
    finally:
        for folder in (staging, trash):
            shutil.rmtree(folder, ignore_errors=True)


def _use_in_whole_model(model: PeftModel) -> str:
    names = whole_model_names(model.get_base_model())
    if not names:
        return ""
    return f"""
## In the whole model

The base model holds more than the language model that was trained. In the class of the whole model, PEFT needs the
names by which that one calls the weights:

```python
model = PeftModel.from_pretrained(whole_model, "THIS_FOLDER", key_mapping={names!r})
```
"""
