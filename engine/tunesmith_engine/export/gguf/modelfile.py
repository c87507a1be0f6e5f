"""The file that tells Ollama how to use a GGUF file: chat template, stop tokens and system prompt."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tunesmith_engine.export.gguf.tokenizer import adds_bos, template_stops

Tokenizer = Any  # Any: a transformers tokenizer
Chat = list[dict[str, str]]

MODELFILE_NAME = "Modelfile"

_CHATS = ("u", "su", "uau", "suau", "uauau")
"""Who speaks in the chats that both templates must render alike: system, user, assistant."""

_ROLES = {"s": "system", "u": "user", "a": "assistant"}
_QUOTES = '"""'


@dataclass(frozen=True, slots=True)
class Modelfile:
    """A Modelfile's text, and whether a system prompt could not be told in it."""

    text: str
    lacks_system_prompt: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chat template puts around messages.

    Attributes:
        start: of a chat without a system prompt; often the default one.
        system: before and after a system prompt, None where the template takes none.
        user: before and after a question.
        assistant: before and after an answer.
        answer: what the model continues, after the last question.
    """

    start: str
    system: tuple[str, str] | None
    user: tuple[str, str]
    assistant: tuple[str, str]
    answer: str

    def rendered(self, chat: Chat) -> str:
        """Return a chat as the frame puts it."""
        parts = {"system": self.system or ("", ""), "user": self.user, "assistant": self.assistant}
        text = "" if chat[0]["role"] == "system" else self.start
        for message in chat:
            before, after = parts[message["role"]]
            text += before + message["content"] + after
        return text + self.answer


def modelfile(file_name: str, tokenizer: Tokenizer, stops: Sequence[int], system_prompt: str = "") -> Modelfile | None:
    """Return a Modelfile; None for a chat template that Ollama's own language can't say.

    Args:
        file_name: of the GGUF file beside it.
        tokenizer: of the model.
        stops: numbers of the tokens that end an answer by generation_config.json.
        system_prompt: that the model was trained with, "" for none.
    """
    template, takes_system = "{{ .Prompt }}", False
    if tokenizer.chat_template:
        frame = frame_of(tokenizer)
        if frame is None or _QUOTES in repr(frame):
            return None
        template, takes_system = _template(frame), frame.system is not None
    ends = [tokenizer.eos_token_id, *template_stops(tokenizer), *stops]
    names = dict.fromkeys(tokenizer.convert_ids_to_tokens([end for end in ends if end is not None]))
    lines = [f"FROM ./{file_name}", f"TEMPLATE {_QUOTES}{template}{_QUOTES}"]
    lines += [f'PARAMETER stop "{name}"' for name in names]
    # Ollama ends a text at the first three quotes.
    lacks = bool(system_prompt) and (not takes_system or _QUOTES in system_prompt or system_prompt.endswith('"'))
    if system_prompt and not lacks:
        lines.append(f"SYSTEM {_QUOTES}{system_prompt}{_QUOTES}")
    return Modelfile("\n".join(lines) + "\n", lacks)


def frame_of(tokenizer: Tokenizer) -> Frame | None:
    """Return what a chat template puts around messages; None where that depends on more than who speaks."""
    try:
        start, end = _around(tokenizer, "u")
        _, middle, between, last = _around(tokenizer, "uau")
    except Exception:
        # Templates raise what they like.
        return None
    system: list[str] = []
    # Some say that they take no system prompt.
    with contextlib.suppress(Exception):
        system = _around(tokenizer, "su")[:2]
    asks = _common_end([between, start, *system[1:]])
    shared = _common_start([middle, end])
    if last != end:
        return None
    frame = Frame(
        start.removesuffix(asks),
        (system[0], system[1].removesuffix(asks)) if system else None,
        (asks, shared),
        (middle.removeprefix(shared), between.removesuffix(asks)),
        end.removeprefix(shared),
    )
    chats = [_chat(speakers) for speakers in _CHATS if frame.system or "s" not in speakers]
    same = all(frame.rendered(chat) == _text(tokenizer, chat) for chat in chats)
    return frame if same else None


def _chat(speakers: str) -> Chat:
    return [{"role": _ROLES[who], "content": f"Tune{place}smith"} for place, who in enumerate(speakers)]


def _text(tokenizer: Tokenizer, chat: Chat) -> str:
    text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    # Where llama.cpp puts this token before a text, a second one would be too many.
    return text.removeprefix(tokenizer.bos_token) if adds_bos(tokenizer) else text


def _around(tokenizer: Tokenizer, speakers: str) -> list[str]:
    """Return the texts before, between and after the messages of a chat."""
    chat = _chat(speakers)
    rest, found = _text(tokenizer, chat), []
    for message in chat:
        before, content, rest = rest.partition(message["content"])
        if not content:
            raise ValueError("the template leaves a message out")
        found.append(before)
    return [*found, rest]


def _common_end(texts: Sequence[str]) -> str:
    return _common_start([text[::-1] for text in texts])[::-1]


def _common_start(texts: Sequence[str]) -> str:
    columns = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in columns)


def _template(frame: Frame) -> str:
    """Return a frame in Ollama's language."""
    said = {"user": frame.user, "assistant": frame.assistant}
    text = _quoted(frame.start)
    if frame.system:
        said = {"system": frame.system, **said}
        text = f"{{{{ if not .System }}}}{text}{{{{ end }}}}" if text else ""
    text += "{{ range .Messages }}"
    for number, (role, (before, after)) in enumerate(said.items()):
        text += f'{{{{ {"else " if number else ""}if eq .Role "{role}" }}}}'
        text += f"{_quoted(before)}{{{{ .Content }}}}{_quoted(after)}"
    return text + "{{ end }}{{ end }}" + _quoted(frame.answer)


def _quoted(text: str) -> str:
    return text.replace("{{", '{{ "{{" }}')
