"""Unigram tokenizers of SentencePiece, which take the likeliest way to cut a text instead of merging pairs."""

from __future__ import annotations

import base64

from gguf import GGUFWriter, TokenType

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.vocabulary import SPACE, Values, Vocabulary, refused

UNUSED_SCORE = -1000.0


def add_unigram(writer: GGUFWriter, values: Values, vocabulary: Vocabulary) -> None:
    """Write what llama.cpp needs for the tokenizers of T5 and its kin.

    Args:
        writer: of the file.
        values: of tokenizer.json.
        vocabulary: of the tokenizer; the type of its unknown token is set.

    Raises:
        UserError: `export-unsupported` for a text that is prepared in another way than there.
    """
    model = values["model"]
    scores = [UNUSED_SCORE] * len(vocabulary.tokens)
    for number, (_, score) in enumerate(model["vocab"]):
        scores[number] = float(score)
    if model.get("unk_id") is not None:
        vocabulary.types[model["unk_id"]] = int(TokenType.UNKNOWN)
    steps = _flat(values.get("normalizer"), "normalizers")
    merges_spaces = has_table = False
    for step in steps:
        match step["type"]:
            case "Precompiled":
                has_table = True
                writer.add_precompiled_charsmap(base64.b64decode(step["precompiled_charsmap"]))
            case "Replace" if step["pattern"] == {"Regex": " {2,}"} and step["content"] in (" ", SPACE):
                merges_spaces = True
            case "Strip" if has_table and not step["strip_left"]:
                # The table makes spaces of line ends and tabs, and those at the end go when spaces are merged.
                pass
            case other:
                raise refused(Message("it prepares a text by {step}", step=other))
    words = _flat(values.get("pre_tokenizer"), "pretokenizers")
    if [step["type"] for step in words] != ["Metaspace"]:
        raise refused(Message("it cuts a text into words in a way of its own"))
    writer.add_tokenizer_model("t5")
    writer.add_token_scores(scores)
    writer.add_add_space_prefix(words[0].get("prepend_scheme", "always") != "never")
    writer.add_remove_extra_whitespaces(merges_spaces)


def _flat(values: Values | None, name: str) -> list[Values]:
    if not values:
        return []
    return [step for part in values[name] for step in _flat(part, name)] if values["type"] == "Sequence" else [values]
