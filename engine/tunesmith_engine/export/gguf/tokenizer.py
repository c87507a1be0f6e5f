"""The tokenizer of a model as llama.cpp has it, taken from what transformers loads."""

from __future__ import annotations

import json
from typing import Any

from gguf import GGUFWriter, TokenType

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.pre_tokenizer import BLIND_TO_MARKS, pre_tokenizer
from tunesmith_engine.export.gguf.unigram import add_unigram
from tunesmith_engine.export.gguf.vocabulary import SPACE, Values, Vocabulary, refused

WORDS_OF_NAMES = ("phi-3", "phi3", "jina-v2", "modern-bert")
PHI_3_TOKENS = {"</s>", "<unk>", "<s>", "<|endoftext|>"}
OTHER_NAME = "Fine-tuned model"


def add_tokenizer(writer: GGUFWriter, tokenizer: Any, num_rows: int, stops: list[int]) -> None:  # Any: of transformers
    """Write vocabulary, merges, special tokens and chat template.

    Args:
        writer: of the file.
        tokenizer: as transformers loads it.
        num_rows: of the model's embedding.
        stops: numbers of the tokens that end an answer by generation_config.json.

    Raises:
        UserError: `export-unsupported` for a kind of tokenizer that is not known here.
    """
    values = _values(tokenizer)
    model = values["model"]
    if max([*_numbers(model).values(), *(token["id"] for token in values["added_tokens"])]) >= num_rows:
        raise refused(Message("it has more tokens than the model"))
    vocabulary = _vocabulary(values, num_rows)
    match model["type"]:
        case "BPE":
            _add_bpe(writer, tokenizer, values, vocabulary)
        case "Unigram" if not model.get("byte_fallback"):
            add_unigram(writer, values, vocabulary)
        case other:
            raise refused(Message("it is of the kind {kind}", kind=other))
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    _add_special(writer, tokenizer, stops)
    template = tokenizer.chat_template
    if template:
        writer.add_chat_template(
            [{"name": name, "template": text} for name, text in template.items()]
            if isinstance(template, dict)
            else template
        )


def _add_bpe(writer: GGUFWriter, tokenizer: Any, values: Values, vocabulary: Vocabulary) -> None:
    model = values["model"]
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    if not merges:
        raise refused(Message("it merges nothing"))
    if _is_byte_level(model):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre_tokenizer(values))
        writer.add_token_merges([" ".join(pair) for pair in merges])
    else:
        writer.add_tokenizer_model("llama")
        writer.add_token_scores(_scores(vocabulary.tokens, merges))
        writer.add_add_space_prefix(tokenizer.tokenize("a")[0].startswith(SPACE))


def _is_byte_level(model: Values) -> bool:
    """Return whether all bytes are letters of a tokenizer, not only what it falls back to."""
    return model["type"] == "BPE" and not model.get("byte_fallback")


def _values(tokenizer: Any) -> Values:  # Any: a transformers tokenizer
    """Return what tokenizer.json says."""
    values: Values = json.loads(tokenizer.backend_tokenizer.to_str())
    return values


def _numbers(model: Values) -> dict[str, int]:
    """Return the numbers of the tokens by their text."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return vocabulary
    return {text: number for number, (text, *_) in enumerate(vocabulary)}


def name_in_file(name: str, tokenizer: Any, model_type: str) -> str:  # Any: a transformers tokenizer
    """Return the name of a model for its file: llama.cpp takes blanks after tokens away where it reads some of them.

    Args:
        name: that the person gave.
        tokenizer: of the model.
        model_type: of config.json.
    """
    takes_blanks = any(token.rstrip for token in tokenizer.added_tokens_decoder.values())
    if model_type == "phi3" and takes_blanks and tokenizer.get_vocab().keys() >= PHI_3_TOKENS:
        return f"{name} (Phi-3)"
    return OTHER_NAME if any(word in name.lower() for word in WORDS_OF_NAMES) else name


def _vocabulary(values: Values, num_rows: int) -> Vocabulary:
    tokens = [f"[PAD{number}]" for number in range(num_rows)]
    types = [int(TokenType.UNUSED)] * num_rows
    falls_back = bool(values["model"].get("byte_fallback"))
    for text, number in _numbers(values["model"]).items():
        is_byte = falls_back and len(text) == 6 and text.startswith("<0x") and text.endswith(">")
        tokens[number], types[number] = text, int(TokenType.BYTE if is_byte else TokenType.NORMAL)
    for token in values["added_tokens"]:
        kind = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
        tokens[token["id"]], types[token["id"]] = token["content"], int(kind)
    unknown = values["model"].get("unk_token")
    if falls_back and unknown in tokens:
        types[tokens.index(unknown)] = int(TokenType.UNKNOWN)
    return Vocabulary(tokens, types)


def _scores(tokens: list[str], merges: list[list[str]]) -> list[float]:
    """Return scores by which the best pair is the one that is merged first."""
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(merges):
        ranks.setdefault("".join(pair), rank)
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def _add_special(writer: GGUFWriter, tokenizer: Any, stops: list[int]) -> None:  # Any: a transformers tokenizer
    roles = {
        "bos": writer.add_bos_token_id,
        "eos": writer.add_eos_token_id,
        "unk": writer.add_unk_token_id,
        "pad": writer.add_pad_token_id,
    }
    for role, add in roles.items():
        number = getattr(tokenizer, f"{role}_token_id")
        if number is not None:
            add(number)
    numbers = tokenizer("a")["input_ids"]
    writer.add_add_bos_token(adds_bos(tokenizer))
    writer.add_add_eos_token(bool(numbers) and numbers[-1] == tokenizer.eos_token_id)
    others = [number for number in [*template_stops(tokenizer), *stops] if number != tokenizer.eos_token_id]
    if others:
        writer.add_eot_token_id(others[0])


def is_blind_to_marks(tokenizer: Any) -> bool:  # Any: a transformers tokenizer
    """Return whether llama.cpp is known to cut scripts with combining marks elsewhere than a tokenizer does."""
    values = _values(tokenizer)
    return _is_byte_level(values["model"]) and pre_tokenizer(values) in BLIND_TO_MARKS


def adds_bos(tokenizer: Any) -> bool:  # Any: a transformers tokenizer
    """Return whether every text begins with a token of its own, by what the tokenizer does, not by its settings."""
    return list(tokenizer("a")["input_ids"])[:1] == [tokenizer.bos_token_id]


def template_stops(tokenizer: Any) -> list[int]:  # Any: a transformers tokenizer
    """Return the special token that follows an answer in the chat template."""
    if not tokenizer.chat_template:
        return []
    mark = "Tunesmith"
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": mark}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False)
    except Exception:
        # A template may take other chats only; generation_config.json tells the same.
        return []
    rest = tokenizer(text.rpartition(mark)[2], add_special_tokens=False)["input_ids"]
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return [number for number in rest if number in special][:1]
