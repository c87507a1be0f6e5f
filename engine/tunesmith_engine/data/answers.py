"""Where a chat template puts the assistant's answers: the stretches of rendered text that count for the loss.

Templates that mark answers with {% generation %} say it themselves. For all others the template is asked: the chat is
rendered up to an answer with the generation prompt, which is what the model gets when it has to answer, and if need be
once more with another answer in its place. Where those renderings part from the whole chat, the answer begins and ends.
Where that tells nothing, an error names the row instead of training on a guess.

The stop token behind an answer is found by a chat of our own, whose last answer is known: a row may end with a
question, and some templates write the last answer of a chat in another way than the same answer further up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from tunesmith_core.datafmt import Chat, Message
from tunesmith_core.errors import UserError

Span = tuple[int, int]
"""First character and the one after the last."""

PROBE = "\ue0f1tunesmith\ue0f2"
"""An answer that shares neither its first nor its last character with any real one (private use area)."""

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


class ChatRenderer:
    """Renders chats with a tokenizer's own template and finds the answers in the text.

    Args:
        tokenizer: a fast tokenizer with a chat template.

    Attributes:
        has_stop: whether the template writes a token behind an answer by which the model can say that it ends.

    Raises:
        UserError: `dataset-chat-template-missing` when the tokenizer has none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise UserError("dataset-chat-template-missing", f"{tokenizer.name_or_path} has no chat template.")
        self._tokenizer = tokenizer
        self._is_marked = bool(GENERATION_MARK.search(tokenizer.get_chat_template()))
        # Not only those that are called special: Cohere's end of turn and tokens of others are not.
        added = {token.content for token in tokenizer.added_tokens_decoder.values()} | {*tokenizer.all_special_tokens}
        words = "|".join(re.escape(token) for token in sorted(added, key=len, reverse=True)) or "(?!)"
        self._stop = re.compile(words)
        self._stops = re.compile(f"(?:{words})+")
        self._appended_prompt = ""
        self._appended_prompt = self._find_appended_prompt()
        self._tail = self._find_tail()
        self.has_stop = bool(self._stop.search(self._tail)) or self._is_marked

    def text(self, chat: Chat, place: str) -> str:
        """Return the text of a chat.

        Raises:
            UserError: `dataset-parse-error` when the template refuses the chat; `place` names the row.
        """
        try:
            return self._text(chat.messages)
        except (jinja2.TemplateError, ValueError, TypeError) as error:
            raise UserError("dataset-parse-error", f"{place}: the chat template refuses this chat: {error}.") from error

    def answers(self, chat: Chat, text: str, place: str) -> list[Span]:
        """Return the spans of a chat's text that the assistant says, each with its end-of-turn token.

        Raises:
            UserError: `chat-template-unclear` when the answers can't be told from the rest; `place` names the row.
        """
        if self._is_marked:
            return [(start, self._end_of_turn(text, end)) for start, end in self._marked_spans(chat)]
        numbers = [number for number, message in enumerate(chat.messages) if message["role"] == "assistant"]
        bounds = [self._answer(chat.messages, number, text, place) for number in numbers]
        return [
            (start, self._end_of_turn(text, end))
            for number, (start, end) in zip(numbers, bounds, strict=True)
            if number >= chat.first_trained
        ]

    def _text(self, messages: Sequence[Message], *, prompts: bool = False) -> str:
        text = str(self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=prompts))
        return text if prompts else text.removesuffix(self._appended_prompt)

    def _try_text(self, messages: Sequence[Message], *, prompts: bool = False) -> str | None:
        """Render a chat that the template may refuse, such as an empty one."""
        try:
            return self._text(messages, prompts=prompts)
        except (jinja2.TemplateError, ValueError, TypeError):
            return None

    def _find_appended_prompt(self) -> str:
        """Return the generation prompt that a template appends although none was asked for, else "".

        Between a question and its answer stand the end of the question's turn and the prompt; behind the answer stand
        the end of its turn and the unwanted prompt.
        """
        question, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": PROBE}
        asked = self._try_text([question], prompts=True)
        if self._try_text([question]) != asked:
            return ""
        before, probe, after = (self._try_text([question, answer]) or "").partition(PROBE)
        if not probe or before != asked:
            return ""
        shared = _shared_end(before, after)
        if shared != after:
            return shared
        end_of_turn = self._stop.match(after)
        return after[end_of_turn.end() :] if end_of_turn else ""

    def _find_tail(self) -> str:
        """Return what the template writes behind an answer that ends a chat."""
        answer, system = {"role": "assistant", "content": PROBE}, {"role": "system", "content": "!"}
        question = {"role": "user", "content": "?"}
        for messages in ([question, answer], [system, question, answer]):
            _, probe, tail = (self._try_text(messages) or "").rpartition(PROBE)
            if probe:
                return tail
        return ""

    def _marked_spans(self, chat: Chat) -> list[Span]:
        """Return the stretches that the template itself marks, as transformers finds them."""
        encoded: Any = self._tokenizer.apply_chat_template(  # Any: a BatchEncoding, one of several types by its flags
            list(chat.messages),
            return_dict=True,
            return_assistant_tokens_mask=True,
            tokenizer_kwargs={"return_offsets_mapping": True},
        )
        first = 0
        if chat.first_trained:
            first = len(self._try_text(chat.messages[: chat.first_trained], prompts=True) or "")
        spans: list[Span] = []
        for (start, end), marked in zip(encoded["offset_mapping"], encoded["assistant_masks"], strict=True):
            if not marked or start < first:
                continue
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            spans.append((start, end))
        return spans

    def _answer(self, messages: Sequence[Message], number: int, text: str, place: str) -> Span:
        """Return where the answer begins, generation prompt excluded, and where its content ends."""
        prompt = self._try_text(messages[:number], prompts=True) or ""
        content = messages[number]["content"]
        if prompt and text.startswith(prompt):
            for said in (content, content.strip()):
                if said and text.startswith(said, len(prompt)):
                    return len(prompt), len(prompt) + len(said)
        bounds = self._content(messages, number, text)
        if bounds is None:
            problem = f"the chat template hides where message {number + 1}, an answer, begins and ends."
            raise UserError("chat-template-unclear", f"{place}: {problem}")
        shared = len(_shared_start(text, prompt))
        question = self._content(messages, number - 1, text) if number else None
        # What the template writes between prompt and content (an empty think block) is the model's to say, so it
        # counts; when the prompt can't be found in the text, only the content counts.
        start = min(shared, bounds[0]) if question and shared >= question[1] else bounds[0]
        return start, bounds[1]

    def _content(self, messages: Sequence[Message], number: int, text: str) -> Span | None:
        """Return which stretch of the text changes with a message's content, None when that can't be told."""
        probed = [*messages]
        probed[number] = {**messages[number], "content": PROBE}
        other = self._try_text(probed)
        if other is None or other.count(PROBE) != 1:
            return None
        start = len(_shared_start(text, other))
        end = len(text) - len(_shared_end(text[start:], other[start:]))
        return (start, end) if PROBE in other[start : len(other) - len(text) + end] else None

    def _end_of_turn(self, text: str, end: int) -> int:
        """Return the place behind the tokens by which the model ends its turn; white space after them isn't learned."""
        shared = _shared_start(text[end:], self._tail)
        tokens = self._stops.search(shared)
        return end + (tokens.end() if tokens else len(shared))


def _shared_start(one: str, other: str) -> str:
    """Return the longest text with which both begin."""
    length = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return min(one, other, key=len) if length is None else one[:length]


def _shared_end(one: str, other: str) -> str:
    """Return the longest text with which both end."""
    return _shared_start(one[::-1], other[::-1])[::-1]
