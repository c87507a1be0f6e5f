"""What a bigger model found likely, as targets for the base model: by the numbers that its tokenizer gives to tokens.

A row keeps the likeliest tokens at each place, and not the rest of the distribution. The rest is left out and the
shares of the others are made to sum to 1, as Gemma 3 does (Gemma Team 2025, arXiv:2503.19786, section 2.2). That makes
the target a little surer than the bigger model was (Anshumann et al. 2025, arXiv:2503.16870), by what was left out: how
much that is on average is told where it is a lot.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tunesmith_core.datafmt import StoredAnswer
from tunesmith_core.datafmt.stored import Token
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import STORED
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.example import IGNORED_LABEL, Example, SoftTargets

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LEAST_KNOWN = 0.9
"""Share of the probability below which a person is told how much was left out."""


def fingerprint(tokenizer: PreTrainedTokenizerBase, without: Collection[str] = ()) -> str:
    """Return a digest of which token has which number; tokens that were added for a run are left out."""
    left_out = set(without)
    numbered = sorted((number, token) for token, number in tokenizer.get_vocab().items() if token not in left_out)
    return hashlib.sha256(repr(numbered).encode()).hexdigest()[:16]


class StoredTargets:
    """Makes soft targets of what rows keep.

    Args:
        tokenizer: the base model's own.
        written_share: how much of each target is the written token.
        new_tokens: words that were added to the tokenizer for the run.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, written_share: float, new_tokens: Collection[str]) -> None:
        self._tokenizer, self._written_share = tokenizer, written_share
        self._vocabulary, self._num_tokens = fingerprint(tokenizer, new_tokens), len(tokenizer)
        self._by_bytes: dict[bytes, int] | None = None
        self._known, self._num_places = 0.0, 0

    def of(self, example: Example, answer: StoredAnswer, place: str) -> SoftTargets:
        """Return the targets of a row that is not yet cut; what nothing is kept of is learned as it is written.

        Args:
            example: the row.
            answer: what it keeps.
            place: of the row, named in errors.

        Raises:
            UserError: `dataset-parse-error` where the tokens of the answer are others here.
        """
        if answer.vocabulary not in ("", self._vocabulary):
            raise _unlike(place, Message("they were kept by a model with another tokenizer"))
        tokens = [self._number(token) for token in answer.tokens]
        learned = example.input_ids[1:][example.labels[1:] != IGNORED_LABEL].tolist()
        start = self._start(learned, tokens, answer.text)
        if start is None and len(tokens) > 1:
            # Another token may have ended the answer than the one that the chat template writes.
            tokens.pop()
            start = self._start(learned, tokens, answer.text)
        if start is None:
            raise _unlike(place, Message("the answer has other tokens here than the ones that were kept"))
        counts: list[int] = []
        ids: list[int] = []
        shares: list[float] = []
        for number, token in enumerate(learned):
            inside = start <= number < start + len(tokens)
            likeliest = self._numbered(answer.likeliest[number - start]) if inside else {}
            self._note(likeliest, inside=inside)
            targets = self._mixed(token, likeliest)
            counts.append(len(targets))
            ids += targets.keys()
            shares += targets.values()
        return SoftTargets(np.array(counts, np.int32), np.array(ids, np.int32), np.array(shares, np.float32))

    def notes(self) -> dict[str, str]:
        """Return what a person should know, a code and a sentence, where much was left out."""
        known = self._known / max(1, self._num_places)
        if known >= LEAST_KNOWN:
            return {}
        words = Message(
            "The tokens that the data keeps hold {known} of the bigger model's probability on average. The rest is not "
            "learned, so the model becomes surer than the bigger one is.",
            known=f"{known:.0%}",
        )
        return {"dataset-probabilities-few": words}

    def _start(self, learned: list[int], tokens: list[int | None], text: str) -> int | None:
        """Return at which learned token the kept ones begin, None where they are others or not the whole answer."""
        whole = self._tokenizer.decode(
            [token for token in tokens if token is not None],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        if None in tokens or str(whole).strip() != text.strip():
            return None
        starts = range(len(learned) - len(tokens), -1, -1)
        return next((start for start in starts if learned[start : start + len(tokens)] == tokens), None)

    def _numbered(self, likeliest: Iterable[tuple[Token, float]]) -> dict[int, float]:
        """Return the probability of each token that has a number here."""
        found: dict[int, float] = {}
        for token, logprob in likeliest:
            number = self._number(token)
            if number is not None and number < self._num_tokens:
                found.setdefault(number, math.exp(min(logprob, 0.0)))
        return found

    def _note(self, likeliest: dict[int, float], *, inside: bool) -> None:
        self._known += min(1.0, sum(likeliest.values())) if inside else 0.0
        self._num_places += inside

    def _mixed(self, written: int, likeliest: dict[int, float]) -> dict[int, float]:
        """Return the share of each token, that of the written one first."""
        total = sum(likeliest.values())
        kept = 1.0 - self._written_share if total > 0 else 0.0
        mixed = {written: 1.0 - kept}
        for number, probability in likeliest.items():
            mixed[number] = mixed.get(number, 0.0) + (kept * probability / total if total > 0 else 0.0)
        return mixed

    def _number(self, token: Token) -> int | None:
        """Return the number of a token, None where no token, or more than one, has its bytes."""
        if isinstance(token, int):
            return token
        if self._by_bytes is None:
            self._by_bytes = _numbers_by_bytes(self._tokenizer)
        return self._by_bytes.get(token)


def stored_targets(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> StoredTargets | None:
    """Return what makes the soft targets of a run, None where it learns from none."""
    if spec.objective.kind not in STORED:
        return None
    return StoredTargets(tokenizer, spec.objective.written_share, spec.model.new_tokens)


def _unlike(place: str, reason: Message) -> TunesmithError:
    return TunesmithError(
        "dataset-parse-error",
        "{place}: the probabilities of this row don't fit the base model: {reason}.",
        hint=Message(
            "Use answers of a bigger model of the same family as the base model, or leave rows like this one out."
        ),
        place=place,
        reason=reason,
    )


def _numbers_by_bytes(tokenizer: PreTrainedTokenizerBase) -> dict[bytes, int]:
    """Return the number of each token by its bytes, but for bytes that several tokens have."""
    backend: Any = tokenizer.backend_tokenizer  # Any: a tokenizer of the library of this name
    added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items()}
    decoder = backend.decoder.__getstate__() if backend.decoder else b""
    bytes_of = _byte_level if b'"ByteLevel"' in decoder else _sentence_piece
    found: dict[bytes, int] = {}
    several = set()
    for token, number in tokenizer.get_vocab().items():
        value = added[number].encode() if number in added else bytes_of(token)
        if found.setdefault(value, number) != number:
            several.add(value)
    return {value: number for value, number in found.items() if value not in several}


def _letters() -> dict[str, int]:
    """Return for which byte each letter of a byte-level vocabulary stands, as in GPT-2's bytes_to_unicode."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


LETTERS = _letters()


def _byte_level(token: str) -> bytes:
    if all(letter in LETTERS for letter in token):
        return bytes(LETTERS[letter] for letter in token)
    return token.encode()


def _sentence_piece(token: str) -> bytes:
    """A token such as <0x0A> is a byte, and the sign for a space is one."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()
