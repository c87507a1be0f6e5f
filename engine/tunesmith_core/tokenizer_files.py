"""The files of a tokenizer, as far as they can be judged without reading a vocabulary of megabytes.

The rest is told by the library that reads them, within the first seconds of a run (`tunesmith_engine.model.load`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.model_json import MIB, damaged, read_object, refuse_pointer, unreadable

TOKENIZER_FILES: tuple[tuple[str, ...], ...] = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("tekken.json",),
)
"""Each group alone makes a tokenizer."""

MOST_BYTES = 512 * MIB
"""Of such a file. The largest known has a tenth of it."""

MOST_TEMPLATE_BYTES = 4 * MIB
"""Of a chat template; the longest known has a hundredth of it."""

HEAD_BYTES = (1 << 14, 4 * MIB)
"""Where the added tokens of tokenizer.json stand, of few and of many; libraries write them before the vocabulary."""

EDGE_BYTES = 1 << 12

MOST_DIGITS = 8
MOST_TOKENS = 10 ** (MOST_DIGITS - 1)
"""No model knows a tenth of it, and a library would make a table of all numbers below one that is used."""

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def check_tokenizer(folder: Path, num_rows: int | None) -> None:
    """Refuse a folder without a tokenizer, and files that no library would read.

    Args:
        folder: of the model.
        num_rows: for how many tokens the model has an embedding, if known.

    Raises:
        UserError: `model-files-missing-or-corrupt` with the file and what is wrong.
    """
    for group in TOKENIZER_FILES:
        if all((folder / name).is_file() for name in group):
            for name in group:
                _check_file(folder / name)
            break
    else:
        raise damaged(folder / "tokenizer.json", "the tokenizer is missing")
    config = _settings(folder / "tokenizer_config.json", _SETTINGS)
    special = config | _settings(folder / "special_tokens_map.json", dict.fromkeys(_SPECIAL, _token_problem))
    added = _settings(folder / "added_tokens.json", {})
    for name, value in added.items():
        if type(value) is not int or not 0 <= value < MOST_TOKENS:
            raise damaged(folder / "added_tokens.json", "{name} must have the number of a token", name=shortened(name))
    _check_template(folder / "chat_template.jinja")
    path = folder / "tokenizer.json"
    if path.is_file():
        end = special.get("eos_token")
        _check_end(path, end.get("content") if isinstance(end, dict) else end, num_rows)


def has_chat_template(folder: Path) -> bool:
    """Return whether the tokenizer of a folder that was checked can render chats."""
    if any(_is_filled(folder / name) for name in ("chat_template.jinja", "chat_template.json")):
        return True
    return bool(_settings(folder / "tokenizer_config.json", {}).get("chat_template"))


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _check_file(path: Path) -> None:
    size = path.stat().st_size
    if not size:
        raise damaged(path, "the file is empty")
    if size > MOST_BYTES:
        raise damaged(path, "the file is larger than {most} MiB", most=MOST_BYTES // MIB)
    try:
        refuse_pointer(path)
        if path.suffix == ".json":
            with files.open_file(path) as file:
                head = file.read(EDGE_BYTES).lstrip()
                file.seek(max(0, size - EDGE_BYTES))
                tail = file.read().rstrip()
            if not (head.startswith(b"{") and tail.endswith(b"}")):
                raise damaged(path, "contains no JSON object, or its end is missing")
    except OSError as error:
        raise unreadable(path, error) from error


def _check_template(path: Path) -> None:
    if not path.is_file():
        return
    try:
        with files.open_file(path) as file:
            content = file.read(MOST_TEMPLATE_BYTES + 1)
        content.decode("utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise damaged(path, "the chat template is not UTF-8 text, see byte {number}", number=error.start + 1) from error
    if len(content) > MOST_TEMPLATE_BYTES:
        raise damaged(path, "the file is larger than {most} MiB", most=MOST_TEMPLATE_BYTES // MIB)


def _settings(path: Path, problems: Mapping[str, Callable[[Any], Message | None]]) -> dict[str, Any]:  # Any: JSON
    """Return the object in a file that may be missing, each known value checked."""
    if not path.is_file():
        return {}
    values = read_object(path)
    for name, problem_of in problems.items():
        if values.get(name) is not None and (problem := problem_of(values[name])):
            raise damaged(path, "{name} {problem}", name=name, problem=problem)
    return values


def _token_problem(value: Any) -> Message | None:  # Any: a JSON value
    """A token is a text, or an object that holds one and says how the text around it is treated."""
    sound = isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("content"), str))
    return None if sound else Message("must be a token")


def _tokens_problem(value: Any) -> Message | None:  # Any: a JSON value
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [None]
    return None if not any(map(_token_problem, each)) else Message("must be a list of tokens")


def _decoder_problem(value: Any) -> Message | None:  # Any: a JSON value
    sound = isinstance(value, dict) and all(
        number.isascii() and number.isdigit() and len(number) < MOST_DIGITS and isinstance(token, dict)
        for number, token in value.items()
    )
    return _tokens_problem(value) if sound else Message("must be an object of tokens by their numbers")


def _template_problem(value: Any) -> Message | None:  # Any: a JSON value
    if isinstance(value, list):
        named = all(
            isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("template"), str)
            for each in value
        )
        return None if named else Message("must be a template, or a list of templates with names")
    texts = value.values() if isinstance(value, dict) else [value]
    sound = all(isinstance(each, str) for each in texts)
    return None if sound else Message("must be a template, or a list of templates with names")


def _text_problem(value: Any) -> Message | None:  # Any: a JSON value
    return None if isinstance(value, str) else Message("must be a text")


def _length_problem(value: Any) -> Message | None:  # Any: a JSON value
    sound = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return None if sound else Message("must be a number above 0")


_SETTINGS: dict[str, Callable[[Any], Message | None]] = {
    **dict.fromkeys(_SPECIAL, _token_problem),
    "additional_special_tokens": _tokens_problem,
    "extra_special_tokens": _tokens_problem,
    "added_tokens_decoder": _decoder_problem,
    "chat_template": _template_problem,
    "tokenizer_class": _text_problem,
    "model_max_length": _length_problem,
}
"""Settings of tokenizer_config.json, and what says whether a value of one can be any."""


def _check_end(path: Path, end: object, num_rows: int | None) -> None:
    """Refuse an end-of-text token that the model has no embedding for, where the head of tokenizer.json tells."""
    for token in _added_tokens(path):
        number = token.get("id") if isinstance(token, dict) else None
        if type(number) is not int or not isinstance(token.get("content"), str) or not 0 <= number < MOST_TOKENS:
            raise damaged(path, "added_tokens contains {token}, which is not a token", token=shortened(token))
        if num_rows is not None and token["content"] == end and number >= num_rows:
            raise damaged(
                path,
                "the end-of-text token {token} has the number {number}, but the model knows only {rows} tokens",
                token=shortened(end),
                number=number,
                rows=num_rows,
            )


def _added_tokens(path: Path) -> list[Any]:  # Any: JSON values
    """Return what the head of tokenizer.json lists as added tokens; nothing where it isn't what it seems."""
    for num_bytes in HEAD_BYTES:
        with files.open_file(path) as file:
            head = file.read(num_bytes).decode("utf-8", "replace")
        start = head.find("[", head.find('"added_tokens"'))
        if '"added_tokens"' not in head or start < 0:
            return []
        with contextlib.suppress(ValueError, RecursionError):
            tokens: list[Any] = json.JSONDecoder().raw_decode(head, start)[0]
            return tokens
    return []
