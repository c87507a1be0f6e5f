"""New words of a tokenizer, and room for them in a model: each begins as the mean of the pieces that it had before.

So the output layer finds a new word about as likely as the words it is made of, where random rows would spoil every
prediction (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models"; transformers'
`mean_resizing` takes the mean of all words instead). Nothing here loads PyTorch before there is a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.objectives import HEADS
from tunesmith_core.spec import RunSpec

ALIGNMENT = 8
"""Rows. Products in 16 bits are slower where the number of outputs is no multiple of it (NVIDIA, tensor cores)."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What new words take in the tables of a model.

    Attributes:
        num_rows: of the tables afterwards.
        pieces: the tokens that each new one was written with before, by its number.
        new_rows: numbers of the rows that are new: those of the words, and those that only fill up.
    """

    num_rows: int
    pieces: Mapping[int, Sequence[int]]
    new_rows: tuple[int, ...]

    def configure(self, config: Any) -> None:  # Any: transformers' config of a model
        """Tell a model's settings how many tokens there are."""
        config.get_text_config().vocab_size = self.num_rows

    def grow(self, model: Any) -> None:  # Any: a transformers model
        """Make room in the tables of a frozen model and give new rows their first values."""
        import torch

        num_before = model.get_input_embeddings().weight.shape[0]
        if self.num_rows > num_before:
            model.resize_token_embeddings(self.num_rows, mean_resizing=False)
        for table in _tables(model):
            weight = table.weight
            weight.requires_grad_(False)
            with torch.no_grad():
                mean = weight[:num_before].mean(0, dtype=torch.float32)
                first = [weight[list(self.pieces[row])].float().mean(0) if row in self.pieces else mean
                         for row in self.new_rows]  # fmt: skip
                weight[list(self.new_rows)] = torch.stack(first).to(weight.dtype)


def grown(model: Any, growth: Growth | None) -> Any:  # Any: a transformers model
    """Return a frozen model with room for new words where there are some."""
    if growth:
        growth.grow(model)
    return model


def _tables(model: Any) -> list[Any]:  # Any: a transformers model and modules of it
    tables = [model.get_input_embeddings(), model.get_output_embeddings()]
    own = {id(table.weight): table for table in tables if table is not None}
    return list(own.values())


def growth_of(folder: Path, spec: RunSpec) -> Growth | None:
    """Return what the new words of a run take in its base model, None where there are none.

    Args:
        folder: of the base model.
        spec: of the run.

    Raises:
        UserError: `spec-invalid` for a word that is a token already, and what loading a tokenizer finds.
    """
    words = words_of(spec)
    if not words:
        return None
    from tunesmith_engine.model.folder import load_tokenizer, num_rows
    from tunesmith_engine.model.load import load_config

    present = num_rows(load_config(folder))
    tokenizer = load_tokenizer(folder)
    pieces = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    add_words(tokenizer, words)
    numbers = tokenizer.convert_tokens_to_ids(list(words))
    needed = rows_with(present, numbers)
    rows = sorted({*numbers, *range(present, needed)})
    return Growth(needed, dict(zip(numbers, pieces, strict=True)), tuple(rows))


def rows_with(present: int, numbers: Sequence[int]) -> int:
    """Return the rows of a table that has new words, which are so many tokens as it had and these."""
    needed = max(present, *(number + 1 for number in numbers))
    return -(-needed // ALIGNMENT) * ALIGNMENT if needed > present and present % ALIGNMENT == 0 else needed


def words_of(spec: RunSpec) -> list[str]:
    """Return the new words of a run: none where the model writes no texts."""
    return [] if spec.objective.kind in HEADS else spec.model.new_tokens


def add_words(tokenizer: Any, words: Sequence[str]) -> None:  # Any: a transformers tokenizer
    """Let each word be one token from now on.

    Raises:
        UserError: `spec-invalid` for a word that is a token already.
    """
    if not words:
        return
    from tokenizers import AddedToken

    known = tokenizer.get_vocab()
    single = [
        word for word in words if word in known or len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1
    ]
    if single:
        raise TunesmithError(
            "spec-invalid",
            "model.new_tokens: these words are one token each already. Remove them: {words}",
            words=shortened(", ".join(map(repr, single))),
        )
    # Inside of other words a word stays what it was, where spaces tell words apart.
    tokenizer.add_tokens(
        [AddedToken(word, single_word=word.isascii() and word.isalnum(), normalized=False) for word in words]
    )
