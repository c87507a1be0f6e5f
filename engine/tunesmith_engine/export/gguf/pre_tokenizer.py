"""Which of llama.cpp's ways to cut a text into words a tokenizer has, recognized by its own rules."""

from __future__ import annotations

from typing import Any

from tunesmith_core.errors import TunesmithError

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

LLAMA_3 = rf"{_SHORT}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
QWEN_2 = rf"{_SHORT}|{_WORDS}|\p{{N}}|{_REST}"
_REST_WITH_MARKS = _REST.replace(r"\p{L}\p{N}", r"\p{L}\p{M}\p{N}", 1)
QWEN_35 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|{_REST_WITH_MARKS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_CASED_REST = _REST.replace(r"[\r\n]*|", r"[\r\n/]*|", 1)
TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_CASED_REST}"
GPT_4O = rf"{_CASED[0]}{_SHORT}?|{_CASED[1]}{_SHORT}?|\p{{N}}{{1,3}}|{_CASED_REST}"
DIGITS, BYTES, GPT_2 = "single digits", "bytes", "the words of GPT-2"

NAMES: dict[tuple[str, ...], str] = {
    (LLAMA_3, BYTES): "dbrx",
    (QWEN_2, BYTES): "qwen2",
    (QWEN_35, BYTES): "qwen35",
    (DIGITS, GPT_2): "smollm",
    (GPT_2,): "gpt-2",
    (GPT_4O, BYTES): "gpt-4o",
}
NAMES_OF_WHOLE_WORDS: dict[tuple[str, ...], str] = {(LLAMA_3, BYTES): "llama-bpe", (TEKKEN, BYTES): "tekken"}
"""Of tokenizers that take a word for a token where there is one, whatever their merges say."""

BLIND_TO_MARKS = ("tekken", "gpt-4o")
"""Of these llama.cpp cuts scripts with combining marks, such as Hindi, elsewhere than the tokenizer does."""


def pre_tokenizer(values: dict[str, Any]) -> str:  # Any: JSON values
    """Return llama.cpp's name for the way in which a tokenizer cuts a text.

    Args:
        values: of tokenizer.json.

    Raises:
        UserError: `export-unsupported` when it has none.
    """
    rules = tuple(_rules(values.get("pre_tokenizer") or {}))
    whole = bool(values["model"].get("ignore_merges"))
    name = (NAMES_OF_WHOLE_WORDS if whole else NAMES).get(rules)
    if name is None:
        raise TunesmithError(
            "export-unsupported",
            "The tokenizer can't be exported as GGUF: it cuts a text into words in a way of its own.",
            hint="Export the merged model instead.",
            context=repr(rules),
        )
    return name


def _rules(values: dict[str, Any]) -> list[str]:  # Any: JSON values
    match values.get("type"):
        case "Sequence":
            return [rule for part in values["pretokenizers"] for rule in _rules(part)]
        # Each of the patterns above matches every letter somewhere, so nothing is removed.
        case "Split" if (values["behavior"], values["invert"]) in (("Isolated", False), ("Removed", True)):
            return [values["pattern"].get("Regex", "")]
        case "Digits" if values["individual_digits"]:
            return [DIGITS]
        case "ByteLevel" if not values["add_prefix_space"]:
            return [GPT_2 if values.get("use_regex", True) else BYTES]
    return [str(values.get("type"))]
