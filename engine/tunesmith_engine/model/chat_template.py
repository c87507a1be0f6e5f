"""The chat template that a run chose, in the tokenizer of a base model."""

from __future__ import annotations

from typing import Any

from tunesmith_core.chat_templates import CHAT_TEMPLATES, OWN
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message


def take_chat_template(tokenizer: Any, name: str) -> None:  # Any: a transformers tokenizer
    """Let a tokenizer write chats by a template of the catalogue, whose stop token then ends what the model writes.

    Args:
        tokenizer: of a model folder; it stays as it is for "own".
        name: a key of CHAT_TEMPLATES, or "own".

    Raises:
        UserError: `chat-template-tokens-missing`.
    """
    if name == OWN:
        return
    template = CHAT_TEMPLATES[name]
    known = tokenizer.get_vocab()
    missing = [token for token in template.tokens if token not in known]
    if not (template.stop or tokenizer.eos_token):
        missing.append(Message("a token that ends a document"))
    if missing:
        raise TunesmithError(
            "chat-template-tokens-missing",
            "{path} can't use the chat template {name}: its vocabulary lacks {tokens}.",
            path=tokenizer.name_or_path,
            name=f'"{name}"',
            tokens=", ".join(missing),
        )
    begins = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
    tokenizer.chat_template = ("{{- bos_token }}" if begins else "") + template.text
    if template.stop:
        tokenizer.eos_token = template.stop
