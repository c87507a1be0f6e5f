"""Small tokenizers of every kind that real models have, trained on a few sentences."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.tiny_model import CHAT_TEMPLATE
from tunesmith_engine.export.gguf import pre_tokenizer as known

TEXTS = [
    "The capital of France is Paris, isn't it? They're 12345 years old!",
    "Straße, naïve café, 你好，世界。 Привет, мир! नमस्ते 🙂👍🏽",
    "def add(a, b):\n\treturn a + b  # sum\r\n\n\n    x = 3.14",
    "  leading and   several spaces\tand tabs \n",
    "WE'LL SEE: I've got $1,000.00 & don't care...",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 420


def _byte_level(*steps: pre_tokenizers.PreTokenizer, uses_regex: bool = False) -> Tokenizer:
    core = Tokenizer(models.BPE())
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=uses_regex)
    core.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator(TEXTS * 20, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet))
    return core


def _taking_whole_words(core: Tokenizer) -> Tokenizer:
    values = json.loads(core.to_str())
    values["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(values))


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _sentencepiece(prefix: bool) -> Tokenizer:
    """BPE on characters with bytes for those that are unknown, as SentencePiece makes it."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    steps = [normalizers.Prepend("▁")] if prefix else []
    core.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    core.train_from_iterator(
        TEXTS * 20, trainers.BpeTrainer(vocab_size=VOCABULARY + 40, special_tokens=tokens, limit_alphabet=60)
    )
    # The trainer takes bytes for special tokens; in real files they are none.
    values = json.loads(core.to_str())
    values["added_tokens"] = [token for token in values["added_tokens"] if not token["content"].startswith("<0x")]
    core = Tokenizer.from_str(json.dumps(values))
    steps_back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*steps_back, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return core


def _unigram() -> Tokenizer:
    """Unigram as T5 has it, but for its table of characters.

    The pieces are counted here: the library's trainer gives others at each call. Scores are those of 32 bits that real
    models have, so that ways of the same likelihood are the same sums for every reader.
    """
    words = [word for text in TEXTS for word in f"▁{text}".replace(" ", "▁").replace("▁", " ▁").split(" ")]
    ends = [(word, begin, begin + length) for word in words for length in (1, 2, 3, 4) for begin in range(len(word))]
    counts = Counter(word[begin:end] for word, begin, end in ends if end <= len(word))
    pieces = {piece: count for piece, count in counts.items() if len(piece) == 1 or count > 1}
    total = sum(pieces.values())
    scores = [(piece, float(np.float32(math.log(count / total)))) for piece, count in sorted(pieces.items())]
    core = Tokenizer(models.Unigram([("<unk>", 0.0), *scores], unk_id=0))
    core.normalizer = normalizers.Replace(Regex(" {2,}"), "▁")
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    return core


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "gpt-2": lambda: _byte_level(uses_regex=True),
    "smollm": lambda: _byte_level(pre_tokenizers.Digits(individual_digits=True), uses_regex=True),
    "llama-3": lambda: _byte_level(_split(known.LLAMA_3)),
    "qwen-2": lambda: _byte_level(_split(known.QWEN_2)),
    "gpt-4o": lambda: _byte_level(_split(known.GPT_4O)),
    "tekken": lambda: _taking_whole_words(_byte_level(_split(known.TEKKEN))),
    "unigram": _unigram,
    "llama-2": lambda: _sentencepiece(prefix=True),
    "gemma": lambda: _sentencepiece(prefix=False),
}


def write_tokenizer(kind: str, folder: Path, *, begins: bool = False) -> int:
    """Write a tokenizer into a model folder and return the number of its tokens.

    Args:
        kind: a key of KINDS.
        folder: the folder.
        begins: whether every text begins with a token of its own.
    """
    core = KINDS[kind]()
    core.add_special_tokens(SPECIAL)
    if begins:
        first = (SPECIAL[1], core.token_to_id(SPECIAL[1]))
        core.post_processor = processors.TemplateProcessing(single=f"{first[0]} $A", special_tokens=[first])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        unk_token="<unk>" if core.token_to_id("<unk>") is not None else None,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)
