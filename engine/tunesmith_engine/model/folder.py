"""The folder of a base model and its tokenizer. Nothing here loads PyTorch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunesmith_core.chat_templates import OWN
from tunesmith_core.errors import UserError
from tunesmith_core.model_folder import base_folder, open_model_folder
from tunesmith_core.spec_sections import ModelSpec
from tunesmith_engine.model.chat_template import take_chat_template
from tunesmith_engine.model.foreign import reading, refused
from tunesmith_engine.model.vocabulary import add_words

_FAR_TOKEN = re.compile(rb'":\s*([1-9]\d{7,18})')
"""What stands in tokenizer.json for a number of a token beyond ten million."""


def model_folder(model: ModelSpec) -> Path:
    """Return the checked folder of a base model; one of a hub was downloaded before.

    Raises:
        TunesmithError: what `base_folder` and `open_model_folder` find.
    """
    folder = base_folder(model.path, model.revision)
    # Nothing here may wait for a network: a library that asks a hub for more is refused at once.
    os.environ["HF_HUB_OFFLINE"] = "1"
    open_model_folder(folder)
    return folder


def load_tokenizer(
    folder: Path, template: str = OWN, words: Sequence[str] = ()
) -> Any:  # Any: a transformers tokenizer
    """Return the tokenizer of a model folder, which may come without a chat template or a padding token.

    Args:
        folder: of the base model.
        template: the chat template of the run, as `ModelSpec.chat_template`.
        words: new ones of the run, as `ModelSpec.new_tokens`.

    Raises:
        UserError: `model-files-missing-or-corrupt`, `chat-template-tokens-missing`; `spec-invalid` for a word that is
            a token already.
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
    except UserError:
        if vocabulary.is_file():
            with reading(vocabulary, "the tokenizer can't be read"):
                Tokenizer.from_file(str(vocabulary)).encode("a")
        if (folder / "config.json").is_file():
            # A tokenizer is opened with the config of its model, which may be what is wrong. Imports PyTorch.
            from tunesmith_engine.model.load import load_config

            load_config(folder)
        raise
    take_chat_template(tokenizer, template)
    add_words(tokenizer, words)
    return tokenizer


def padding_id(tokenizer: Any, config: Any) -> int:  # Any: a transformers tokenizer, the config of its model
    """Return the token that fills up short rows; it is neither trained nor seen, so any token will do."""
    for token_id in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token_id is not None and token_id < num_rows(config):
            return int(token_id)
    return 0


def check_token_ids(highest: int, tokenizer: Any, rows: int, folder: Path) -> None:  # Any: a transformers tokenizer
    """Refuse tokens that the model has no embedding for: a GPU would fail without saying why.

    Args:
        highest: number of a token in the data.
        tokenizer: says what it stands for.
        rows: for how many tokens the model has an embedding.
        folder: of the model, named in the error.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    if highest >= rows:
        raise refused(
            folder,
            "{path}: the tokenizer gives {token!r} the number {number}, but the model knows only {rows} tokens.",
            token=str(tokenizer.convert_ids_to_tokens(highest)),
            number=highest,
            rows=rows,
        )


def num_rows(config: Any) -> int:  # Any: transformers' config of a model
    """Return for how many tokens a model has an embedding."""
    return int(config.get_text_config().vocab_size)
