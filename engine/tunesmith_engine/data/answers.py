"""Where a chat template puts the assistant's answers: the stretches of rendered text that count for the loss.

Templates that mark answers with {% generation %} say it themselves. For all others the template is asked: the chat is
rendered up to an answer with the generation prompt, which is what the model gets when it has to answer, and if need be
once more with another answer in its place. Where those renderings part from the whole chat, the answer begins and ends.
Where that tells nothing, an error names the row instead of training on a guess. The token that ends an answer is found
the same way, in a chat of its own, since what a template writes may depend on what follows (Qwen3 drops thoughts).
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith_core.datafmt import Chat, Message
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import phrase
from tunesmith_engine.data.fields import QUESTION, Fields

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Span = tuple[int, int]
"""First character and the one after the last."""

PROBE = "\ue0f1tunesmith\ue0f2"
"""An answer that shares neither its first nor its last character with any real one (private use area)."""

BEGIN, END = "\ue0f4", "\ue0f5"
BEGIN_OR_END = re.compile(f"[{BEGIN}{END}]")

MANY_ANSWERS = 32
"""In longer chats not every answer is looked for by a rendering of its own."""

PROBED: Message = {"role": "assistant", "content": PROBE}

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


class ChatRenderer:
    """Renders chats with a tokenizer's own template and finds the answers in the text.

    Args:
        tokenizer: a fast tokenizer with a chat template.

    Attributes:
        has_stop: whether the template ends an answer with a special token, by which a model learns to stop.
        fitted: returns a chat as this template expects it; see `Fields`.

    Raises:
        UserError: `dataset-chat-template-missing` when the tokenizer has none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise TunesmithError(
                "dataset-chat-template-missing",
                "{path} has no chat template.",
                path=tokenizer.name_or_path,
            )
        self._tokenizer = tokenizer
        special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._special = _pattern(special | {*tokenizer.all_special_tokens})
        self._appended_prompt = ""
        self._appended_prompt = self._find_appended_prompt()
        self._tail, self._stop = self._find_tail()
        if not self._stop:
            # Some tokenizers do not call the token special that ends a turn.
            self._special = _pattern({token.content for token in tokenizer.added_tokens_decoder.values()})
            self._tail, self._stop = self._find_tail()
        self.has_stop = bool(self._stop)
        self._fields = Fields(tokenizer.get_chat_template(tools=[{}]), self._try_text)
        self.fitted = self._fields.fitted

    def unused_fields(self) -> list[str]:
        """Return the fields of messages that the template has written in no chat so far."""
        return self._fields.unused()

    def text(self, chat: Chat, place: str) -> str:
        """Return the text of a chat.

        Raises:
            UserError: `dataset-parse-error` when the template refuses the chat, `model-files-missing-or-corrupt` when
                the template itself is at fault; `place` names the row.
        """
        try:
            return self._text(chat)
        except MemoryError:
            raise
        except Exception as error:
            # A template may fail in any way, as any program may.
            if _is_of_template(error):
                raise TunesmithError(
                    "model-files-missing-or-corrupt",
                    "{path}: the chat template can't be used: {error}. It failed at {place}.",
                    path=_template_file(Path(self._tokenizer.name_or_path)),
                    error=phrase(error),
                    place=place,
                    hint="Choose another model, or replace the chat template with one that works.",
                ) from error
            raise TunesmithError(
                "dataset-parse-error",
                "{place}: the chat template rejects this chat: {error}.",
                place=place,
                error=phrase(error),
            ) from error

    def answers(self, chat: Chat, text: str, place: str) -> list[Span]:
        """Return the spans of a chat's text that the assistant says, each with the token that ends it.

        Raises:
            UserError: `chat-template-unclear` when the answers can't be told from the rest, `dataset-parse-error` for
                a chat with too many messages; `place` names the row.
        """
        if GENERATION_MARK.search(self._tokenizer.get_chat_template(tools=list(chat.tools) or None)):
            return [(start, self._end_of_marked(text, start, end)) for start, end in self._marked_spans(chat)]
        numbers = [
            number
            for number, message in enumerate(chat.messages)
            if message["role"] == "assistant" and number >= chat.first_trained
        ]
        spots = self._spots(chat, text) if len(numbers) > MANY_ANSWERS else {}
        spans: list[Span] = []
        proven: set[str] = set()
        for number in numbers:
            lead, words = spots.get(number, ("", None))
            expected = [(words[0], self._end_of_turn(text, words[1]))] if words else []
            found = expected if lead in proven else self._answer(chat, number, text, place)
            if expected == found:
                proven.add(lead)
            spans += found
        return spans

    def _spots(self, chat: Chat, text: str) -> dict[int, tuple[str, Span]]:
        """Return where the words of answers stand in a text, each with what the template wrote since the words before.

        To render a chat up to each of its answers takes a time that grows with the square of their number. Where the
        template wrote the same before an answer as before one that was found so, that one begins at its words too.
        """
        words = {number: message["content"].strip() for number, message in enumerate(chat.messages)}
        words = {number: said for number, said in words.items() if said}
        marked = list(chat.messages)
        for number, said in words.items():
            before, _, after = marked[number]["content"].partition(said)
            marked[number] = {**marked[number], "content": f"{before}{BEGIN}{said}{END}{after}"}
        pieces = BEGIN_OR_END.split(self._try_text(replace(chat, messages=tuple(marked))) or "")
        if pieces[1::2] != list(words.values()) or "".join(pieces) != text:
            return {}
        spots: dict[int, tuple[str, Span]] = {}
        place = 0
        for number, lead, said in zip(words, pieces[::2], pieces[1::2], strict=False):
            start = place + len(lead)
            place = start + len(said)
            if chat.messages[number] == {"role": "assistant", "content": said}:
                spots[number] = (lead, (start, place))
        return spots

    def _text(self, chat: Chat, *, prompts: bool = False) -> str:
        messages, tools = list(chat.messages), list(chat.tools) or None
        text = str(self._tokenizer.apply_chat_template(messages, tools, tokenize=False, add_generation_prompt=prompts))
        return text if prompts else text.removesuffix(self._appended_prompt)

    def _try_text(self, chat: Chat, *, prompts: bool = False) -> str | None:
        """Render a chat that the template may refuse, such as an empty one."""
        try:
            return self._text(chat, prompts=prompts)
        except MemoryError:
            raise
        except Exception:
            return None

    def _find_appended_prompt(self) -> str:
        """Return the generation prompt that a template appends although none was asked for, else "".

        Between a question and its answer stand the end of the question's turn and the prompt; behind the answer stand
        the end of its turn and the unwanted prompt.
        """
        asked = self._try_text(Chat((QUESTION,)), prompts=True)
        if self._try_text(Chat((QUESTION,))) != asked:
            return ""
        before, probe, after = (self._try_text(Chat((QUESTION, PROBED))) or "").partition(PROBE)
        if not probe or before != asked:
            return ""
        shared = _shared_end(before, after)
        if shared != after:
            return shared
        end_of_turn = self._special.match(after)
        return after[end_of_turn.end() :] if end_of_turn else ""

    def _find_tail(self) -> tuple[str, str]:
        """Return what the template writes behind every answer, and the special token that ends it; both may be "".

        An answer that ends a chat and one that another question follows share it; what only one of them has belongs to
        the chat's end or to the next message.
        """
        last = (self._try_text(Chat((QUESTION, PROBED))) or "").partition(PROBE)[2]
        followed = (self._try_text(Chat((QUESTION, PROBED, QUESTION))) or "").partition(PROBE)[2]
        tail = _shared_start(last, followed)
        run = self._special_run(tail, 0)
        if run:
            return tail[: run[-1].end()], run[-1].group()
        # Another token ends the last answer (gpt-oss): the one that stands in the text is right.
        own = self._special_run(last, 0)
        return (tail, own[0].group()) if own else (tail, "")

    def _special_run(self, text: str, position: int) -> list[re.Match[str]]:
        """Return the first special tokens from a position on that stand behind each other."""
        run: list[re.Match[str]] = []
        found = self._special.search(text, position)
        while found:
            run.append(found)
            found = self._special.match(text, found.end())
        return run

    def _marked_spans(self, chat: Chat) -> list[Span]:
        """Return the stretches that the template itself marks, as transformers finds them."""
        encoded: Any = self._tokenizer.apply_chat_template(  # Any: a BatchEncoding, one of several types by its flags
            list(chat.messages),
            list(chat.tools) or None,
            return_dict=True,
            return_assistant_tokens_mask=True,
            tokenizer_kwargs={"return_offsets_mapping": True},
        )
        first = 0
        if chat.first_trained:
            first = len(self._try_text(_cut(chat, chat.first_trained), prompts=True) or "")
        spans: list[Span] = []
        follows = False
        for (start, end), marked in zip(encoded["offset_mapping"], encoded["assistant_masks"], strict=True):
            if marked and start >= first:
                spans.append((spans.pop()[0], end) if follows else (start, end))
            follows = bool(marked and start >= first)
        return spans

    def _end_of_marked(self, text: str, start: int, end: int) -> int:
        """Return the end of a marked answer, moved behind its stop token where the template left that out."""
        if not self._stop or self._stop in text[start:end]:
            return end
        return self._end_of_turn(text, end)

    def _answer(self, chat: Chat, number: int, text: str, place: str) -> list[Span]:
        """Return what the assistant says in a message, generation prompt excluded, stop token included.

        That is one stretch, or two where the template writes the tools' answers between calls and content (Gemma 4).
        """
        prompt = self._try_text(_cut(chat, number), prompts=True) or ""
        message = chat.messages[number]
        content, calls = message["content"], message.get("tool_calls")
        if message.keys() == {"role", "content"} and prompt and text.startswith(prompt):
            for said in filter(None, (content, content.strip())):
                if text.startswith(said, len(prompt)):
                    return [(len(prompt), self._end_of_turn(text, len(prompt) + len(said)))]
        said_span = None if calls and not content else self._changing(chat, number, text, content=PROBE)
        called = self._changing(chat, number, text, tool_calls=_probed_calls(calls)) if calls else None
        bounds = [bound for bound in (called, said_span) if bound]
        if not bounds:
            if calls:
                raise TunesmithError(
                    "chat-template-unclear",
                    "{place}: the chat template does not write the tool calls of message {number}.",
                    place=place,
                    number=number + 1,
                )
            raise TunesmithError(
                "chat-template-unclear",
                "{place}: the chat template hides where the answer in message {number} begins and ends.",
                place=place,
                number=number + 1,
            )
        shared = len(_shared_start(text, prompt))
        question = self._changing(chat, number - 1, text, content=PROBE) if number else None
        # What the template writes between prompt and content (an empty think block) is the model's to say, so it
        # counts; when the prompt can't be found in the text, only the content counts.
        start = min(start for start, _ in bounds)
        start = min(shared, start) if question and shared >= question[1] else start
        if called and said_span and called[1] <= said_span[0]:
            return [
                (start, self._end_of_turn(text, called[1], has_calls=True)),
                (said_span[0], self._end_of_turn(text, said_span[1])),
            ]
        return [(start, self._end_of_turn(text, max(end for _, end in bounds), has_calls=bool(called)))]

    def _changing(self, chat: Chat, number: int, text: str, **probe: Any) -> Span | None:  # Any: JSON values
        """Return which stretch of the text changes with a part of a message, None when that can't be told."""
        changed = {**chat.messages[number], **probe}
        other = self._try_text(replace(chat, messages=(*chat.messages[:number], changed, *chat.messages[number + 1 :])))
        if other is None or PROBE not in other or ("content" in probe and other.count(PROBE) > 1):
            return None
        start = len(_shared_start(text, other))
        return start, len(text) - len(_shared_end(text[start:], other[start:]))

    def _end_of_turn(self, text: str, end: int, *, has_calls: bool = False) -> int:
        """Return the place behind the token with which the model ends its turn; white space after it is not learned."""
        if self._tail and not has_calls and text.startswith(self._tail, end):
            return end + len(self._tail)
        run = self._special_run(text, end)
        if not run or not (has_calls or not text[end : run[0].start()].strip()):
            return end + len(_shared_start(text[end : end + len(self._tail)], self._tail))
        return next((token.end() for token in run if token.group() == self._stop), run[0].end())


def _pattern(tokens: set[str]) -> re.Pattern[str]:
    # An empty one would be found everywhere, for ever.
    words = sorted(filter(None, tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)) or "(?!)")


def _cut(chat: Chat, number: int) -> Chat:
    return replace(chat, messages=chat.messages[:number])


def _probed_calls(calls: list[Any]) -> list[Any]:  # Any: JSON values
    """Return tool calls of which every argument is another one."""
    probed = copy.deepcopy(calls)
    for call in probed:
        function = call.get("function", call)
        arguments = function.get("arguments")
        function["arguments"] = PROBE if isinstance(arguments, str) else dict.fromkeys(arguments or [PROBE], PROBE)
    return probed


def _shared_start(one: str, other: str) -> str:
    """Return the longest text with which both begin."""
    length = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return min(one, other, key=len) if length is None else one[:length]


def _shared_end(one: str, other: str) -> str:
    """Return the longest text with which both end."""
    return _shared_start(one[::-1], other[::-1])[::-1]


def _is_of_template(error: Exception) -> bool:
    """Return whether a rendering failed by what the template does, whatever the chat says."""
    # Imported here: data without chats needs no templates.
    from jinja2.exceptions import SecurityError, TemplateSyntaxError

    return isinstance(error, TemplateSyntaxError | SecurityError | OverflowError | RecursionError)


def _template_file(folder: Path) -> Path:
    own = folder / "chat_template.jinja"
    return own if own.is_file() else folder / "tokenizer_config.json"
