"""The product of a run: a PEFT adapter folder that plain PEFT loads, published as a whole."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from peft import PeftModel

from tunesmith_core import files
from tunesmith_core.folder_switch import switch_folder
from tunesmith_core.messages import Message
from tunesmith_engine.export.restoring import ensure_restored
from tunesmith_engine.export.whole_model import WholeModel, whole_model_of


def export_adapter(model: PeftModel, tokenizer: Any, card: str, target: Path, tmp: Path) -> dict[str, str]:
    """Write adapter, tokenizer and card into a folder beside nothing else.

    Args:
        model: the trained model.
        tokenizer: the base model's tokenizer, which chats with the adapter need.
        card: text of README.md.
        target: the folder to be; an earlier one is replaced.
        tmp: folder on the same volume for the staging folder.

    Returns:
        What a person should know before they load it: codes and sentences.

    Raises:
        RunFailure: `adapter-not-restored` when plain PEFT would not restore every trained weight.
        OSError: as the file system says; an earlier adapter is still in its place then.
    """
    tmp.mkdir(exist_ok=True)
    staging = tmp / f"adapter-{uuid.uuid4().hex[:8]}"
    try:
        whole = write_adapter(model, tokenizer, card, staging)
        for path in staging.rglob("*"):
            if path.is_file():
                files.fsync_file(path)
        files.crashpoint("export.before-switch")
        switch_folder(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    if whole is None or whole.key_mapping:
        return {}
    said = Message(
        "PEFT can't restore this adapter in {name}, the class that the base model's config.json names. Load the base "
        "model with AutoModelForCausalLM, as the adapter's card shows.",
        name=whole.name,
    )
    return {"adapter-class-differs": said}


def write_adapter(model: PeftModel, tokenizer: Any, card: str, folder: Path) -> WholeModel | None:
    """Write the files of an adapter into a folder and return the larger model that the trained one is a part of.

    Raises:
        RunFailure: `adapter-not-restored` when plain PEFT would not restore every trained weight.
        OSError: as the file system says.
    """
    # "auto" would ask the hub for the base model's vocabulary; the embedding is never trained here.
    model.save_pretrained(folder, safe_serialization=True, save_embedding_layers=False)
    ensure_restored(model, folder)
    whole = whole_model_of(model, folder)
    tokenizer.save_pretrained(folder)
    files.atomic_write_text(folder / "README.md", card + _use_in_whole_model(whole))
    return whole


def _use_in_whole_model(whole: WholeModel | None) -> str:
    if whole is None:
        return ""
    if not whole.key_mapping:
        return f"""
## Only as a language model

PEFT can't restore this adapter in {whole.name}, the class that the base model's config.json names. Load the base model
with AutoModelForCausalLM, as shown above.
"""
    return f"""
## In the whole model

The base model holds more than the language model that was trained. In the class of the whole model, {whole.name}, PEFT
needs the names by which that one calls the weights:

```python
model = PeftModel.from_pretrained(whole_model, "THIS_FOLDER", key_mapping={whole.key_mapping!r})
```
"""
