"""The folder of a base model, downloaded if need be, and its tokenizer. Nothing here loads PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tunesmith_core.model_folder import is_hub_id, open_model_folder
from tunesmith_core.spec_sections import ModelSpec

DOWNLOADED_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def model_folder(model: ModelSpec) -> Path:
    """Return the checked local folder of a base model, downloading a hub model into the cache first.

    Raises:
        UserError: `model-files-missing-or-corrupt` or `model-pickle-refused`.
    """
    folder = Path(model.path).expanduser()
    if not folder.is_dir() and is_hub_id(model.path):
        from huggingface_hub import snapshot_download

        folder = Path(
            snapshot_download(model.path, revision=model.revision or None, allow_patterns=DOWNLOADED_PATTERNS)
        )
    else:
        # Nothing about a local model may wait for a network that is not there.
        os.environ["HF_HUB_OFFLINE"] = "1"
    open_model_folder(folder)
    return folder


def load_tokenizer(folder: Path) -> Any:  # Any: a transformers tokenizer
    """Return the tokenizer of a model folder; it may lack a chat template and a padding token."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def padding_id(tokenizer: Any) -> int:  # Any: a transformers tokenizer
    """Return the token that fills up short rows; it is neither trained nor seen, so any token will do."""
    for token_id in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token_id is not None:
            return int(token_id)
    return 0
