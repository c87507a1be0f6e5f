"""Sample prompts as tokens: what a model is asked on the way, as a person will ask it."""

from __future__ import annotations

from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.render import max_characters
from tunesmith_engine.failures import MAX_MESSAGE_CHARS

THINKING = "<think>"
"""With which a model begins to think; some templates write it for the model."""


def sample_prompt_ids(
    spec: RunSpec, tokenizer: Any, system_prompt: str, portions: Portions
) -> dict[str, list[int]]:  # Any: a transformers tokenizer
    """Return the tokens of the sample prompts of a run under a system prompt; what the template refuses is left out."""
    found: dict[str, list[int]] = {}
    for prompt in spec.evaluation.sample_prompts:
        portions.begin("prompt")
        try:
            found[prompt] = prompt_ids(tokenizer, prompt, system_prompt, portions)
        except TunesmithError:
            continue
    return found


def prompt_ids(
    tokenizer: Any, prompt: str, system_prompt: str, portions: Portions
) -> list[int]:  # Any: a transformers tokenizer
    """Return the tokens that ask a question; see `conversation_ids`."""
    messages = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return conversation_ids(tokenizer, [*messages, {"role": "user", "content": prompt}], portions)[0]


def conversation_ids(
    tokenizer: Any, messages: list[dict[str, str]], portions: Portions
) -> tuple[list[int], bool]:  # Any: a transformers tokenizer
    """Return the tokens that ask for the next answer of a conversation, and whether they open the model's thinking.

    They are made by the chat template where there is one. Else what was said stands as plain text, line by line,
    without the system prompt.

    Raises:
        TunesmithError: `sample-failed` when the template refuses it, `foreign-limit` when it writes too much.
    """
    if not tokenizer.chat_template:
        text = "\n".join(message["content"] for message in messages if message["role"] != "system")
        return list(tokenizer(text)["input_ids"]), False
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except MemoryError:
        raise
    except Exception as error:
        raise TunesmithError(
            "sample-failed", "The chat template rejects the prompt: {error}", error=str(error)[:MAX_MESSAGE_CHARS]
        ) from error
    most = max_characters(sum(len(message["content"]) for message in messages))
    if len(text) > most:
        raise portions.now.over_output(most)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]), text.rstrip().endswith(THINKING)
