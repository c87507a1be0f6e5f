"""The chat template that a run chose, in the tokenizer of a base model."""

from __future__ import annotations

import re
from typing import Any

from tunesmith_core.chat_templates import CHAT_TEMPLATES, OWN
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

_ASKS_FOR_PARTS = re.compile(
    r"""(\[\s*['"]type['"]\s*\]|\.type|selectattr\(\s*['"]type['"])\s*(==|,\s*['"]equalto['"]\s*,)\s*['"](text|image)['"]"""
)
_TELLS_STRINGS = re.compile(r"\bis\s+(not\s+)?string\b")

TEXTS_AS_PARTS = """{%- set as_parts = namespace(messages=[]) -%}
{%- for message in messages -%}
{%- if message.content is string -%}
{%- set message = dict(message, content=[{"type": "text", "text": message.content}]) -%}
{%- endif -%}
{%- set as_parts.messages = as_parts.messages + [message] -%}
{%- endfor -%}
{%- set messages = as_parts.messages -%}
"""
"""Makes a list of one part of each message that is a string."""


def taking_texts(template: str) -> str:
    """Return a chat template that takes messages which are strings.

    Those of some models for images (SmolVLM, LLaVA) know lists of parts alone, and write nothing of a string.
    """
    needs_parts = _ASKS_FOR_PARTS.search(template) and not _TELLS_STRINGS.search(template)
    return TEXTS_AS_PARTS + template if needs_parts else template


def take_chat_template(tokenizer: Any, name: str) -> None:  # Any: a transformers tokenizer
    """Let a tokenizer write chats by a template of the catalogue, whose stop token then ends what the model writes.

    Args:
        tokenizer: of a model folder; for "own" it stays as it is, but for what `taking_texts` does.
        name: a key of CHAT_TEMPLATES, or "own".

    Raises:
        UserError: `chat-template-tokens-missing`.
    """
    if name == OWN:
        if isinstance(tokenizer.chat_template, str):
            tokenizer.chat_template = taking_texts(tokenizer.chat_template)
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
