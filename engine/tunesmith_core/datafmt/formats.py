"""The shapes a row of training data can have.

A layout says which shape the rows of a file have and which column plays which role. Shapes are recognised by the names
of the columns; the names in use out there are listed in `ROLES`, the person can map others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tunesmith_core.datafmt.encoding import MAX_NAME
from tunesmith_core.messages import Message as Sentence

Message = dict[str, Any]  # Any: JSON values
"""{"role": "system" | "user" | "assistant" | "tool", "content": text}, and what else the row says of the message."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages to be rendered by the chat template.

    Attributes:
        messages: in order, at least one of the assistant.
        first_trained: index of the first message whose answer counts for the loss (later ones count too).
        tools: descriptions of the functions that the assistant may call.
    """

    messages: tuple[Message, ...]
    first_trained: int = 0
    tools: tuple[dict[str, Any], ...] = ()  # Any: JSON values


@dataclass(frozen=True, slots=True)
class PromptCompletion:
    """A question and its answer; only the answer counts for the loss.

    Attributes:
        as_chat: a model with a chat template learns them as user and assistant; else they are joined as they stand.
        between: stands between both where they are joined.
    """

    prompt: str
    completion: str
    as_chat: bool = True
    between: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One plain text that is learned whole."""

    text: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """An example that was made into tokens before.

    Attributes:
        input_ids: numbers of tokens.
        labels: the same where they are trained, -100 elsewhere.
        column: that held them.
    """

    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    column: str


@dataclass(frozen=True, slots=True)
class Preference:
    """Two answers to one question, each with it, of which people like the first one better."""

    chosen: Chat | PromptCompletion
    rejected: Chat | PromptCompletion


@dataclass(frozen=True, slots=True)
class Labeled:
    """A text, or an answer with its question, and what is said of it: its class, or a number as text."""

    text: PromptCompletion | Text
    label: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """A problem, the steps of a solution, and of each step whether it is right."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[bool, ...]


Conversation = Chat | PromptCompletion | Text | Tokens | Labeled | Stepped


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that a file holds but no row can, such as text that is not UTF-8.

    Attributes:
        what: what it is, to stand behind "holds".
    """

    what: str


@dataclass(frozen=True, slots=True)
class Role:
    """A part that a column can play in a format.

    Attributes:
        name: key of the column mapping.
        usual_names: column names that are taken for it without being told.
        required: whether rows without it are refused.
    """

    name: str
    usual_names: tuple[str, ...]
    required: bool = True


MULTIPLE_CHOICE, PREFERENCE, TOKENS, LABELED = "multiple-choice", "preference", "tokens", "labeled"
STEPS = "steps"
MESSAGE_COLUMNS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "contents")
ANSWER_ROLES = ("completion", "output")
"""Roles of columns that hold the answer."""

CONTEXT_COLUMNS = ("context", "passage", "article", "story", "background", "上下文", "背景")
"""What a question may be about; in a column of its own it stands beside the question."""

SYSTEM_ROLE = Role(
    "system", ("system", "system_prompt", "systeminstruction", "system_instruction", "系统提示"), required=False
)
TOOLS_ROLE = Role("tools", ("tools", "functions"), required=False)
LABEL_ROLE = Role("label", ("label", "kto_tag"), required=False)
"""Whether an answer is a good one; of usual names only a column of truth values is taken for it."""
OPTION_ROLES = {f"option_{letter}": (letter, str(number)) for number, letter in enumerate("abcdefgh", 1)}
"""Roles of columns that hold one option each, and what tells the names of these columns apart."""

OPTION_LISTS = ("choices", "options", "endings")
"""Names of columns that hold all options of a question."""

_OPTION_WORDS = ("option", "choice", "antwort", "answer", "sol", "选项")

_ASKING_NAMES = (
    *("question", "question_stem", "prompt", "query", "instruction", "input", "goal", "ctx", "sentence"),
    *("frage", "问题", "题目"),
)
_RIGHT_NAMES = (
    *("answer", "correct", "correct_answer", "correct answer", "correct_option", "correct option", "right_answer"),
    *("answer_key", "answerkey", "answer_index", "answer_idx", "label", "solution", "lösung", "richtige antwort"),
    *("richtig", "答案", "正确答案", "cop"),
)


_PROMPT_NAMES = (
    *("prompt", "question", "query", "problem", "input", "inputs", "user", "human", "inputs_pretokenized"),
    *("document", "article", "dialogue", "text"),
)
_COMPLETION_NAMES = (
    *("completion", "answer", "response", "output", "target", "outputs", "targets", "targets_pretokenized"),
    "answers",
    *("solution", "canonical_solution", "assistant", "bot", "summary", "highlights", "abstract", "code"),
)
"""A text of which another column holds the summary is read to be summed up, and not learned alone."""


def _option_role(name: str) -> Role:
    marks = OPTION_ROLES[name]
    named = (f"{word}{between}{mark}" for mark in marks for word in _OPTION_WORDS for between in ("_", "", " "))
    return Role(name, (marks[0], *named, f"op{marks[0]}"), required=False)


ROLES: dict[str, tuple[Role, ...]] = {
    PREFERENCE: (
        Role("chosen", ("chosen", "chosen_response", "chosen_messages", "preferred", "preferred_output")),
        Role(
            "rejected",
            ("rejected", "rejected_response", "rejected_messages", "dispreferred", "non_preferred_output"),
        ),
        Role("prompt", ("prompt", "question", "instruction", "query", *MESSAGE_COLUMNS, "input"), required=False),
        Role("input", ("input", "context"), required=False),
        Role("winner", (), required=False),
        SYSTEM_ROLE,
        TOOLS_ROLE,
    ),
    "messages": (Role("messages", MESSAGE_COLUMNS), SYSTEM_ROLE, TOOLS_ROLE, LABEL_ROLE),
    "sharegpt": (Role("conversations", MESSAGE_COLUMNS), SYSTEM_ROLE, TOOLS_ROLE, LABEL_ROLE),
    MULTIPLE_CHOICE: (
        Role("question", _ASKING_NAMES),
        Role("context", CONTEXT_COLUMNS, required=False),
        Role("choices", OPTION_LISTS, required=False),
        *map(_option_role, OPTION_ROLES),
        Role("answer", _RIGHT_NAMES),
    ),
    "alpaca": (
        Role("instruction", ("instruction",)),
        Role("input", ("input", "context"), required=False),
        Role("output", ("output", "response", "answer")),
        SYSTEM_ROLE,
        Role("history", ("history",), required=False),
        LABEL_ROLE,
    ),
    "prompt-completion": (
        Role("prompt", _PROMPT_NAMES),
        Role("completion", _COMPLETION_NAMES),
        Role("input", (*CONTEXT_COLUMNS, "input"), required=False),
        SYSTEM_ROLE,
        TOOLS_ROLE,
        LABEL_ROLE,
    ),
    "text": (Role("text", ("text", "content", "document")),),
    TOKENS: (
        Role("input_ids", ("input_ids", "token_ids")),
        Role("labels", ("labels",), required=False),
        Role("attention_mask", ("attention_mask",), required=False),
    ),
}
ROLES[LABELED] = (
    Role(
        "text",
        (
            *("text", "sentence", "content", "review", "document", "comment", "prompt", "question", "message", "title"),
            *("文本", "内容", "句子", "评论"),
        ),
    ),
    Role("answer", ("answer", "response", "completion"), required=False),
    Role(
        "class",
        (
            *("label", "labels", "class", "category", "sentiment", "intent", "target", "label_text", "score", "rating"),
            *("标签", "类别", "分类", "情感"),
        ),
    ),
)
ROLES[STEPS] = (
    Role("prompt", ("prompt", "question", "problem", "query", "instruction", "问题", "题目")),
    Role("steps", ("completions", "steps", "solution", "步骤")),
    Role("step_labels", ("labels", "ratings", "label", "标签")),
)
ROLES["prompt-completion-raw"] = tuple(
    role for role in ROLES["prompt-completion"] if role not in (SYSTEM_ROLE, TOOLS_ROLE)
)
"""Roles of each format, in the order in which formats are tried."""

PROMPT_ONLY = "prompt-only"
"""Prompts without answers, for runs whose model writes the answers."""

NO_ANSWER = "…"
"""Stands where such a row has no answer; nothing is learned from it."""

ROLES[PROMPT_ONLY] = (Role("prompt", (*_PROMPT_NAMES, *MESSAGE_COLUMNS)), SYSTEM_ROLE, TOOLS_ROLE)

ONLY_CHOSEN = frozenset({"prompt-completion-raw", LABELED, PROMPT_ONLY, STEPS})
"""Formats that are never guessed: rows of these columns are read in another way where nobody has said so."""

RAW = "prompt-completion-raw"
RAW_TEXT = Sentence(
    "The model has a chat template, but prompts and completions are joined as plain text. In a chat, the model will "
    "see a format that it was not trained on."
)
"""What is said where a person chose RAW for such a model."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of one file are read.

    Attributes:
        format: a key of ROLES.
        columns: which column plays which role.
        first_number: of options that answers name by number; None where no number stands for an option.
        are_held: whether no answer is a text, but all hold one, as a list of right answers does; see `held_text`.
        bad_number: where answers are learned from that are labeled good or bad, the number that says bad beside 1 for
            good: 0 or -1; None elsewhere, where a label only leaves rows out.
    """

    format: str
    columns: Mapping[str, str]
    first_number: int | None = None
    are_held: bool = False
    bad_number: int | None = None


Place = str | Callable[[], str]
"""Where a row is; making the words for each of a million rows takes a third of the time to read them."""

MAX_LISTED = 50
"""Columns that an error names."""


def listed(columns: Iterable[str]) -> str:
    """Return names of columns for a sentence, the first ones where there are many."""
    first = list(islice(columns, MAX_LISTED + 1))
    return ", ".join(name[:MAX_NAME] for name in first[:MAX_LISTED]) + ("..." if len(first) > MAX_LISTED else "")
