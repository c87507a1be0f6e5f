"""The folder of a base model, downloaded if need be, and its tokenizer. Nothing here loads PyTorch."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tunesmith_core.errors import UserError
from tunesmith_core.model_folder import local_folder, open_model_folder
from tunesmith_core.spec_sections import ModelSpec
from tunesmith_engine.model.foreign import reading, refused

DOWNLOADED_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
NOT_DOWNLOADED = ["adapter_*"]
"""An adapter beside the weights of a hub model; transformers would put it into the model without a word."""

_FAR_TOKEN = re.compile(rb'":\s*([1-9]\d{7,18})')
"""What stands in tokenizer.json for a number of a token beyond ten million."""


def model_folder(model: ModelSpec) -> Path:
    """Return the checked local folder of a base model, downloading a hub model into the cache first.

    Raises:
        TunesmithError: what `local_folder` and `open_model_folder` find.
    """
    folder = local_folder(model.path)
    if folder is None:
        from huggingface_hub import snapshot_download

        folder = Path(
            snapshot_download(
                model.path,
                revision=model.revision or None,
                allow_patterns=DOWNLOADED_PATTERNS,
                ignore_patterns=NOT_DOWNLOADED,
            )
        )
    else:
        # Nothing about a local model may wait for a network that is not there.
        os.environ["HF_HUB_OFFLINE"] = "1"
    open_model_folder(folder)
    return folder


def load_tokenizer(folder: Path) -> Any:  # Any: a transformers tokenizer
    """Return the tokenizer of a model folder, which may come without a chat template or a padding token.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
        EnvironmentProblem: `tokenizer-missing-dep`.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    vocabulary = folder / "tokenizer.json"
    if vocabulary.is_file() and (far := _FAR_TOKEN.search(vocabulary.read_bytes())):
        # The library makes a table up to the highest number, of terabytes where need be, and would end this process.
        raise refused(
            vocabulary, "{path}: a token has the number {number}, which no model knows.", number=far[1].decode()
        )
    try:
        with reading(folder / "tokenizer_config.json", "the tokenizer can't be read"):
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            # What it was made of can be wrong in ways that show only in use.
            tokenizer("a")
            _ = tokenizer.all_special_ids, tokenizer.pad_token_id, tokenizer.eos_token_id
            return tokenizer
    except UserError:
        if vocabulary.is_file():
            with reading(vocabulary, "the tokenizer can't be read"):
                Tokenizer.from_file(str(vocabulary)).encode("a")
        raise


def padding_id(tokenizer: Any, config: Any) -> int:  # Any: a transformers tokenizer, the config of its model
    """Return the token that fills up short rows; it is neither trained nor seen, so any token will do."""
    for token_id in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token_id is not None and token_id < num_rows(config):
            return int(token_id)
    return 0


def num_rows(config: Any) -> int:  # Any: transformers' config of a model
    """Return for how many tokens a model has an embedding."""
    return int(config.get_text_config().vocab_size)
