"""Conversations as token ids and labels: exactly what the model will see, and which of it counts for the loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tunesmith_core.datafmt import Chat, Conversation, PromptCompletion
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data.answers import ChatRenderer, Span
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.literals import Literals
from tunesmith_engine.model.foreign import reading

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH_ROWS = 256
"""Rows that are rendered before they are tokenised: taking turns with each row was measured to take twice as long."""

GROUP_ROWS, GROUP_CHARACTERS = 16, 20_000
"""Most rows and text that go through the tokenizer together."""

CHARACTERS_PER_S, MESSAGES_PER_S = 100_000, 100
"""By these a long row may take longer than others; computers of today are ten times faster."""

MAX_CHARACTERS, MAX_GROWTH = 1_000_000, 4
"""A template may write so many characters, and so many more for each character of the row."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """One conversation before tokenisation.

    Attributes:
        text: what the tokenizer gets.
        trained: spans of characters that count for the loss.
        starts_document: whether the tokenizer's own leading tokens come first; a chat template writes its own.
        literals: where special tokens of the data stand that are text.
        row: number of the row in its file.
        question: what a person asks last, "" for a text that asks nothing.
    """

    text: str
    trained: list[Span]
    starts_document: bool
    literals: list[Span] = field(default_factory=list)
    row: int = 0
    question: str = ""


@dataclass(frozen=True, slots=True)
class Tokenised:
    """One conversation as tokens.

    Attributes:
        example: ids and labels, not yet cut to the context length.
        text: what was tokenised.
        ends: for each token the character behind it in `text`; leading tokens have 0.
        question: see Rendered.
    """

    example: Example
    text: str
    ends: NDArray[np.int64]
    question: str = ""


class Renderer:
    """Renders and tokenises conversations with a model's own tokenizer and chat template.

    Args:
        tokenizer: a fast tokenizer.
        data: system prompt and which tokens count.
        portions: told which work on a row begins.

    Attributes:
        notes: what a person should know about the rows rendered so far: codes and sentences.
        makes_chats: whether a prompt and its completion became a chat.

    Raises:
        EnvironmentProblem: `tokenizer-missing-dep` when the tokenizer can't tell which token stands where.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, data: DataSpec, portions: Portions | None = None
    ) -> None:
        if not tokenizer.is_fast:
            raise TunesmithError("tokenizer-missing-dep", "{path} has no fast tokenizer.", path=tokenizer.name_or_path)
        self._tokenizer = tokenizer
        self._data = data
        self._chats: ChatRenderer | None = None
        self._literals = Literals(tokenizer)
        self.portions = portions or Portions()
        self.notes: dict[str, str] = {}
        self.makes_chats = False
        alone = tokenizer("")["input_ids"]
        self._leading_ids = alone[:-1] if alone and alone[-1] == tokenizer.eos_token_id else alone

    @property
    def leading_text(self) -> str:
        """The tokens that come before every plain text, as text."""
        return str(self._tokenizer.decode(self._leading_ids))

    def render(self, conversation: Conversation, place: str) -> Rendered:
        """Return the text of a conversation and what of it counts.

        Raises:
            UserError: `dataset-chat-template-missing`, `dataset-parse-error` or `chat-template-unclear`; `place` names
                the row.
        """
        if isinstance(conversation, PromptCompletion) and self._tokenizer.chat_template:
            if conversation.as_chat:
                conversation = self._as_chat(conversation)
            else:
                self.notes["dataset-raw-text"] = Message(
                    "The model has a chat template, but prompts and completions are joined as plain text. In a chat, "
                    "the model will see a format that it was not trained on."
                )
        if isinstance(conversation, Chat):
            num_characters = num_characters_of(conversation)
            more_cpu_s = num_characters / CHARACTERS_PER_S + len(conversation.messages) / MESSAGES_PER_S
            self.portions.begin("template", more_cpu_s=more_cpu_s)
            return self._render_chat(conversation, place, max_characters(num_characters))
        prompt = conversation.prompt if isinstance(conversation, PromptCompletion) else ""
        text = conversation.completion if isinstance(conversation, PromptCompletion) else conversation.text
        end = self._tokenizer.eos_token or ""
        # Plain text may have been rendered for this model, so that its special tokens are meant.
        self._literals.count(prompt, text.removesuffix(end))
        self._note_literals(as_text=False)
        whole = prompt + text + ("" if text.endswith(end) else end)
        start = 0 if self._data.train_on == "all" else len(prompt)
        # A text that already begins with the leading token must not get a second one.
        starts_document = not self._leading_ids or not whole.startswith(self.leading_text)
        return Rendered(whole, [(start, len(whole))], starts_document, row=self.portions.row, question=prompt)

    def _as_chat(self, pair: PromptCompletion) -> Chat:
        """Return question and answer as the messages that a person and this model exchange."""
        self.makes_chats = True
        answer = pair.completion.removesuffix(self._tokenizer.eos_token or "")
        return Chat(({"role": "user", "content": pair.prompt}, {"role": "assistant", "content": answer}))

    def _render_chat(self, chat: Chat, place: str, most: int) -> Rendered:
        if self._chats is None:
            self._chats = ChatRenderer(self._tokenizer)
            if not self._chats.has_stop:
                self.notes["chat-template-no-stop"] = Message(
                    "The chat template of {path} ends answers without a stop token, so the model doesn't learn when to "
                    "stop.",
                    path=self._tokenizer.name_or_path,
                )
        if self._data.system_prompt and chat.messages[0]["role"] != "system":
            system = {"role": "system", "content": self._data.system_prompt}
            first_trained = chat.first_trained + 1 if chat.first_trained else 0
            chat = replace(chat, messages=(system, *chat.messages), first_trained=first_trained)
        as_text, question = self._data.special_tokens == "text", _last_question(chat)
        hidden = self._literals.hidden(chat)
        chat = self._chats.fitted(hidden if as_text else chat)
        self._note_literals(as_text=as_text)
        if unused := self._chats.unused_fields():
            said = ", ".join(f'"{key}"' for key in unused)
            self.notes["dataset-fields-unused"] = Message(
                "The chat template of {path} does not use {names}.", path=self._tokenizer.name_or_path, names=said
            )
        else:
            self.notes.pop("dataset-fields-unused", None)
        text = self._chats.text(chat, place)
        if len(text) > most:
            raise self.portions.now.over_output(most)
        everything = self._data.train_on == "all"
        trained = [(0, len(text))] if everything else self._chats.answers(chat, text, place)
        text, literals = self._literals.restored(text) if as_text else (text, [])
        return Rendered(text, trained, False, literals, self.portions.row, question)

    def _note_literals(self, *, as_text: bool) -> None:
        if not self._literals.num_rows:
            return
        names = ", ".join(word for word, _ in self._literals.counts.most_common(3))
        values = {"num_rows": self._literals.num_rows, "names": names}
        self.notes["dataset-special-tokens"] = (
            Message("Rows with special tokens of the model ({names}): {num_rows}. They are trained as text.", **values)
            if as_text
            else Message(
                "Rows with special tokens of the model ({names}): {num_rows}. They are trained as control tokens.",
                **values,
            )
        )

    def tokenise(self, rendered: Iterable[Rendered]) -> Iterator[Tokenised]:
        """Yield the tokens of each text: many are rendered before they go through the tokenizer, some at a time."""
        remaining = iter(rendered)
        while batch := list(islice(remaining, BATCH_ROWS)):
            for group in _groups(batch):
                more_cpu_s = sum(len(item.text) for item in group) / CHARACTERS_PER_S
                self.portions.begin("tokenizer", group[0].row, last_row=group[-1].row, more_cpu_s=more_cpu_s)
                yield from self._group(group)

    def _group(self, group: list[Rendered]) -> Iterator[Tokenised]:
        with reading(Path(self._tokenizer.name_or_path), "the tokenizer can't split the rows into tokens"):
            encoded = self._tokenizer(
                [item.text for item in group],
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                verbose=False,
            )
        for item, ids, offsets in zip(group, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            if item.literals:
                yield self._tokenised(item, *self._literals.encode(item.text, item.literals))
            else:
                yield self._tokenised(item, ids, offsets)

    def _tokenised(self, item: Rendered, ids: list[int], offsets: list[Span]) -> Tokenised:
        leading = self._leading_ids if item.starts_document else []
        input_ids = np.array(leading + ids, dtype=np.int32)
        starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
        counts = np.zeros(len(ids), dtype=bool)
        if item.trained:
            # A token counts when any of its characters does: when the first stretch that ends behind its start begins
            # before its end.
            trained = np.array([*sorted(item.trained), (len(item.text) + 1,) * 2])
            counts = trained[np.searchsorted(trained[:-1, 1], starts, side="right"), 0] < ends
        # As in TRL, the leading tokens of a text that is learned whole count too.
        whole = bool(item.trained) and item.trained[0][0] == 0
        counts = np.concatenate([np.full(len(leading), whole), counts])
        labels = np.where(counts, input_ids, IGNORED_LABEL).astype(np.int32)
        ends = np.concatenate([np.zeros(len(leading), int), ends])
        return Tokenised(Example(input_ids, labels), item.text, ends, item.question)


def _groups(batch: list[Rendered]) -> Iterator[list[Rendered]]:
    """Split a batch so that few rows can be meant when the tokenizer takes too long, and a long row is alone."""
    group: list[Rendered] = []
    num_characters = 0
    for item in batch:
        if group and (len(group) == GROUP_ROWS or num_characters + len(item.text) > GROUP_CHARACTERS):
            yield group
            group, num_characters = [], 0
        group.append(item)
        num_characters += len(item.text)
    yield group


def _last_question(chat: Chat) -> str:
    """Return what a person says before the last answer."""
    answers = [place for place, message in enumerate(chat.messages) if message["role"] == "assistant"]
    before = reversed(chat.messages[: answers[-1] if answers else None])
    return next((str(message["content"]) for message in before if message["role"] == "user"), "")


def max_characters(num_characters: int) -> int:
    """Return how much text a template may make of so much text."""
    return MAX_CHARACTERS + MAX_GROWTH * num_characters


def num_characters_of(chat: Chat) -> int:
    """Return about how much text a chat is."""
    total = len(str(chat.tools)) if chat.tools else 0
    for message in chat.messages:
        total += len(message["content"]) if message.keys() == {"role", "content"} else len(str(message))
    return total
