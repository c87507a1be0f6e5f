"""Conversations as token ids and labels: exactly what the model will see, and which of it counts for the loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tunesmith_core.datafmt import Chat, Conversation, Labeled, PromptCompletion, Stepped, Text, Tokens
from tunesmith_core.datafmt.formats import RAW_TEXT
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data.answers import GENERATION_MARK, ChatRenderer
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.literals import Literals
from tunesmith_engine.data.system_prompt import CommonSystemPrompt
from tunesmith_engine.data.tokenising import CHARACTERS_PER_S, Rendered, Tokenised, Tokeniser, batches_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MESSAGES_PER_S = 100
"""By this a long chat may take longer than others; computers of today are ten times faster."""

MAX_CHARACTERS, MAX_GROWTH = 1_000_000, 4
"""A template may write so many characters, and so many more for each character of the row."""


STEP_END = "\n"
"""Stands behind every step of a solution, where it is rated."""


class Renderer:
    """Renders and tokenises conversations with a model's own tokenizer and chat template.

    Args:
        tokenizer: a fast tokenizer.
        data: system prompt and which tokens count.
        portions: told which work on a row begins.

    Attributes:
        notes: what a person should know about the rows rendered so far: codes and sentences.
        makes_chats: whether a prompt and its completion became a chat.
        system_prompt: of the rows rendered so far.

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
        self.system_prompt = CommonSystemPrompt()
        alone = tokenizer("")["input_ids"]
        self._adds_end = bool(alone) and alone[-1] == tokenizer.eos_token_id
        self._leading_ids = alone[:-1] if self._adds_end else alone
        self._tokeniser = Tokeniser(tokenizer, self._leading_ids, self._literals, self.portions)

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
        if isinstance(conversation, Stepped):
            conversation = self._in_steps(conversation)
        if isinstance(conversation, Tokens):
            return self._as_given(conversation, place)
        is_read = isinstance(conversation, Labeled)
        if isinstance(conversation, Labeled):
            conversation = conversation.text
        if isinstance(conversation, PromptCompletion) and self._tokenizer.chat_template:
            if conversation.as_chat:
                conversation = self._as_chat(conversation)
            else:
                self.notes["dataset-raw-text"] = RAW_TEXT
        if isinstance(conversation, Chat):
            num_characters = num_characters_of(conversation)
            more_cpu_s = num_characters / CHARACTERS_PER_S + len(conversation.messages) / MESSAGES_PER_S
            self.portions.begin("template", more_cpu_s=more_cpu_s + self._tokeniser.ahead_cpu_s)
            return self._render_chat(conversation, place, max_characters(num_characters))
        self.system_prompt.take()
        prompt = conversation.prompt + conversation.between if isinstance(conversation, PromptCompletion) else ""
        text = conversation.completion if isinstance(conversation, PromptCompletion) else conversation.text
        # What is only read ends as whoever asks for its label will end it.
        end = "" if is_read and not self._adds_end else self._tokenizer.eos_token or ""
        # Plain text may have been rendered for this model, so that its special tokens are meant.
        self._literals.count(prompt, text.removesuffix(end))
        self._note_literals(as_text=False)
        whole = prompt + text + ("" if text.endswith(end) else end)
        start = 0 if self._data.train_on == "all" else len(prompt)
        # A text that already begins with the leading token must not get a second one.
        starts_document = not self._leading_ids or not whole.startswith(self.leading_text)
        trained, is_text = [(start, len(whole))], isinstance(conversation, Text)
        return Rendered(
            whole, trained, starts_document, row=self.portions.row, question=prompt, is_text=is_text
        )

    def _as_given(self, tokens: Tokens, place: str) -> Rendered:
        """Return tokens of the data as they are, once all are known to be the model's."""
        largest = max(*tokens.input_ids, *tokens.labels)
        if largest >= len(self._tokenizer):
            raise TunesmithError(
                "dataset-parse-error",
                '{place}, column "{column}": the token {number} is not among the {num:,} of {path}.',
                hint="Choose the model for which the data was made into tokens.",
                place=place,
                column=tokens.column,
                number=largest,
                num=len(self._tokenizer),
                path=self._tokenizer.name_or_path,
            )
        is_text = IGNORED_LABEL not in tokens.labels
        return Rendered("", [], False, row=self.portions.row, tokens=tokens, is_text=is_text)

    def _in_steps(self, solution: Stepped) -> Tokens:
        """Return a solution as TRL's trainer of process reward models reads it, its labels where its steps end.

        Problem, steps and the separators behind these are made into tokens one by one, so that each step has an end of
        its own. A text that looks like a special token is none.
        """
        asked, separator, *steps = self._tokenizer(
            [solution.prompt, STEP_END, *solution.steps], add_special_tokens=False, split_special_tokens=True
        )["input_ids"]
        start = [*self._leading_ids, *asked]
        input_ids, labels = start, [IGNORED_LABEL] * len(start)
        for step, is_right in zip(steps, solution.labels, strict=True):
            input_ids = [*input_ids, *step, *separator]
            labels = [*labels, *[IGNORED_LABEL] * (len(step) + len(separator) - 1), int(is_right)]
        return Tokens(tuple(input_ids), tuple(labels), "")

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
        self.system_prompt.take(chat.messages)
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
        for _, tokenised in self.tokenise_batches(batches_of(rendered)):
            yield from tokenised

    def tokenise_batches(self, batches: Iterator[list[Rendered]]) -> Iterator[tuple[list[Rendered], list[Tokenised]]]:
        """Yield batches of texts with the tokens of each; the next batch is made while the tokenizer works on one."""
        marks_answers = GENERATION_MARK.search(str(self._tokenizer.chat_template))
        return self._tokeniser.batches(batches, work_ahead=not marks_answers)

    def again(self, item: Rendered, example: Example, ends: NDArray[np.int64]) -> Tokenised:
        """Return a row as `tokenise` has returned it before, of which ids, labels and ends were kept."""
        if item.tokens:
            return self._tokeniser.from_tokens(item.tokens, item.is_text)
        return Tokenised(example, item.text, ends, item.question, item.is_text)


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
