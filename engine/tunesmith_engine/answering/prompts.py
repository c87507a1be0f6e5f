"""The prompts of data, without the answers that it may have. Nothing here loads PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunesmith_core.datafmt import Chat, Conversation, Preference, PromptCompletion, Text
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.answers import AskedSpec
from tunesmith_engine.data.read import Source

NAME = "prompts.jsonl"

Messages = list[dict[str, Any]]  # Any: JSON values


def read_prompts(host: Host, spec: AskedSpec) -> dict[str, int]:
    """Write the prompts of data into the folder of the operation, each once; return how many there are.

    Args:
        host: of the limited process.
        spec: which data.

    Raises:
        UserError: what is wrong with a file; `dataset-empty` without any prompt.
    """
    sources = [Source(each, skip_bad_rows=True, portions=host.portions) for each in spec.run.data.sources]
    known: set[str] = set()
    num_rows = 0
    with (host.folder / NAME).open("w", encoding="utf-8", errors="replace", newline="\n") as file:
        for source in sources:
            for _, conversation in source.conversations():
                num_rows += 1
                line = json.dumps(prompt_of(conversation))
                if line != "[]" and line not in known:
                    known.add(line)
                    file.write(line + "\n")
                if num_rows % 100 == 0:
                    host.phase("reading", num_rows, 0, "rows")
    if not known:
        path = spec.run.data.sources[0].path
        raise TunesmithError("dataset-empty", "{path}: no row has a prompt that a model could answer.", path=path)
    return {"num_prompts": len(known), "num_left_out": num_rows - len(known)}


def prompt_of(conversation: Conversation | Preference) -> Messages:
    """Return what comes before the last answer of a row, or a text that is a prompt itself; [] where nothing does.

    Rows with tools have answers that this program can't write.
    """
    if isinstance(conversation, Preference):
        conversation = conversation.chosen
    if isinstance(conversation, Text):
        return [{"role": "user", "content": conversation.text}]
    if isinstance(conversation, PromptCompletion):
        return [{"role": "user", "content": conversation.prompt}]
    if not isinstance(conversation, Chat) or conversation.tools:
        return []
    messages = [{"role": each["role"], "content": each["content"]} for each in conversation.messages]
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    plain = all(isinstance(each["content"], str) and each["role"] != "tool" for each in messages)
    return messages if messages and messages[-1]["role"] == "user" and plain else []


def read_messages(path: Path) -> Iterator[Messages]:
    """Yield the prompts of a file that `read_prompts` wrote."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
