"""Guesses how rows with columns of any name are meant: by the names, then by what is in the columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from tunesmith_core.datafmt.choices import FEWEST_OPTIONS, may_hold_options
from tunesmith_core.datafmt.formats import LABELED, MULTIPLE_CHOICE, OPTION_ROLES, PREFERENCE, ROLES, STEPS, Role
from tunesmith_core.datafmt.held import held_label, number_of
from tunesmith_core.datafmt.message_lists import message_list
from tunesmith_core.datafmt.steps import step_columns
from tunesmith_core.datafmt.verdicts import vote_columns

Row = Mapping[str, Any]  # Any: JSON values

_QUESTION = (
    "prompt",
    "question",
    "query",
    "instruct",
    "user",
    "human",
    "frage",
    "pregunta",
    "问",
    "题",
    "指令",
    "输入",
    "提示",
    "用户",
    "質問",
    "질문",
    "pergunta",
    "domanda",
    "vraag",
    "вопрос",
    "питання",
    "pytanie",
    "otázka",
    "fråga",
    "soru",
    "pertanyaan",
    "câu hỏi",
    "problem",
)
_ANSWER = (
    "complet",
    "answer",
    "respon",
    "output",
    "reply",
    "assistant",
    "target",
    "antwort",
    "respuesta",
    "réponse",
    "答",
    "回",
    "输出",
    "响应",
    "助手",
    "답",
    "resposta",
    "risposta",
    "antwoord",
    "ответ",
    "відповід",
    "odpow",
    "odpověď",
    "svar",
    "cevap",
    "yanıt",
    "jawaban",
    "trả lời",
    "solution",
    "lösung",
)
HINTS: dict[str, tuple[str, ...]] = {
    "question": _QUESTION,
    "answer": (*_ANSWER, "correct", "richtig", "正确"),
    "instruction": _QUESTION,
    "prompt": _QUESTION,
    "output": _ANSWER,
    "completion": _ANSWER,
    "system": ("system", "系统"),
    "input": ("context", "上下文"),
    "text": ("text", "content", "body", "文本", "内容"),
    "chosen": ("chosen", "prefer", "better"),
    "rejected": ("reject", "worse"),
    "label": ("label",),
    "class": ("label", "class", "categor", "sentiment", "标签", "类"),
    "history": ("history", "历史"),
}
"""Parts of names, in the languages of the data sets out there, that speak for a role."""

BETTER, WORSE = (
    frozenset("good better best winner winning positive preferred desired correct right".split()),
    frozenset("bad worse worst loser losing negative dispreferred undesired unpreferred incorrect wrong".split())
    | {"non", "not"},
)
"""Words in names of columns that say which of two answers people like better; "non" and "not" turn others round."""

PREFERRED = ("chosen", "rejected")
"""Roles that no value of a column speaks for: which answer is better is never guessed."""

UNGUESSED = (*PREFERRED, "steps", "step_labels")
"""These, and lists of steps with their labels, which are found as a pair or not at all."""

_SAID = ("prompt", "completion", "output")
"""Roles whose values differ from row to row; an instruction may repeat."""

ALIKE = {
    "instruction": "prompt",
    "question": "prompt",
    "output": "completion",
    "answer": "completion",
    "conversations": "messages",
}
"""Roles of two formats that the same column plays."""


NUM_EXAMPLES = 3

MARKS = tuple("_id _ids _idx _index _type _domain _url _source _lang _language _category _topic".split())
"""How the names of columns end that say something about a question or an answer."""

COUNTS = ("num_", "n_", "count_")
"""How they begin where they say how many there are."""

NUM_LETTERS = 2
"""A value with fewer is a number, a date or a mark, not something that a person says."""

FEWEST_QUESTIONS = 0.3
"""Share of the values of a column that must ask so that it is the one of questions."""

MUCH_LONGER = 1.5
"""Texts that are so much longer than others are the answers, whichever stand first."""

NUMBER = re.compile(r"-?\d+(?:[.,]\d+)?")
DATE = re.compile(r"\d{4}-\d\d?-\d\d?\b|\d{1,2}[./]\d{1,2}[./]\d{2,4}\b")

WORDS_OF_SENTENCE = 4
"""Names of columns have fewer."""

FEWEST_ROWS = 3
"""In which a value must be the same so that it tells one column from the others."""

LONGEST_LABEL = 60
"""Letters of a label; a column with a longer value holds texts."""

MOST_DIFFERENT = 10
"""In more rows a value must occur again, or be a number, so that a column is taken for labels."""

FEWEST_TEXTS = 0.8
"""Share of the values of a column that must be texts so that it is taken for one without asking."""


def speaking_columns(head: Sequence[Row]) -> dict[str, str]:
    """Return the columns of questions and answers where their names leave no doubt, else nothing.

    Each name speaks for one of both roles, no other does for the same one, and both columns hold texts; answers may be
    numbers where the name ends with a word for them, as "best_answer" does and "response_time" does not.
    """
    if option_columns(head):
        # Beside options an answer says which of them is right, and who asks alone would leave them out.
        return {}
    names = list(dict.fromkeys(name for row in head for name in row))
    found = {}
    for role, hints, others in (("prompt", _QUESTION, _ANSWER), ("completion", _ANSWER, _QUESTION)):
        named = [name for name in names if _speaks(name, hints) and not _speaks(name, others)]
        lower = {name: name.lower().rstrip() for name in named}
        named = [name for name in named if not (lower[name].endswith(MARKS) or lower[name].startswith(COUNTS))]
        may_be_number = role == "completion"
        fitting = [
            name
            for name in named
            if _is_text(name, head) or (may_be_number and _ends_with(name, hints) and not _is_held(name, head))
        ]
        if len(fitting) != 1:
            return {}
        found[role] = fitting[0]
    spare = [name for name in names if name not in found.values() and _is_text(name, head)]
    same = _same_in_all(head)
    # What is the same in each row is no question while another column could be.
    return {} if found["prompt"] in same and not same.issuperset(spare) else found


def _ends_with(name: str, hints: Sequence[str]) -> bool:
    return _speaks(re.split(r"[\W_]+", name.rstrip())[-1], hints)


def is_data(names: Sequence[str]) -> bool:
    """Return whether names of columns are rather the values of a first row: all are numbers or sentences."""
    return bool(names) and all(NUMBER.fullmatch(name) or len(name.split()) >= WORDS_OF_SENTENCE for name in names)


def speaks(name: str) -> bool:
    """Return whether the name of a column speaks for a question or an answer."""
    return _speaks(name, _QUESTION) or _speaks(name, _ANSWER)


def _speaks_for(role: str, name: str, hints: Sequence[str]) -> bool:
    words = _words(name)
    if role == "chosen":
        return not words & WORSE and (_speaks(name, hints) or bool(words & BETTER))
    return _speaks(name, hints) or (role == "rejected" and bool(words & WORSE))


def _words(name: str) -> set[str]:
    return set(re.split(r"[\W_]+", name.lower()))


def _speaks(name: str, hints: Sequence[str]) -> bool:
    return any(hint in name.lower() for hint in hints)


def _is_held(name: str, head: Sequence[Row]) -> bool:
    return any(isinstance(row.get(name), list | dict) for row in head)


def _is_text(name: str, head: Sequence[Row]) -> bool:
    values = [row.get(name) for row in head]
    texts = [value for value in values if isinstance(value, str) and sum(map(str.isalpha, value)) >= NUM_LETTERS]
    return len(texts) >= FEWEST_TEXTS * len(values)


def guess_format(head: Sequence[Row]) -> str:
    """Return the format that fits the values of the first rows best."""
    messages = next((message_list(value)[0] for row in head for value in row.values() if _is_messages(value)), None)
    if messages is not None:
        return "sharegpt" if "from" in messages else "messages"
    if option_columns(head):
        return MULTIPLE_CHOICE
    return "prompt-completion" if len(_texts(head)) > 1 else "text"


def option_columns(head: Sequence[Row]) -> list[str]:
    """Return the columns that hold options of questions, by their names; none where no other column asks."""
    names = list(dict.fromkeys(name for row in head for name in row))
    usual = {role.name: role.usual_names for role in ROLES[MULTIPLE_CHOICE]}
    apart = [name for name in names if any(name.lower() in usual[role] for role in OPTION_ROLES)]
    found = [name for name in names if name.lower() in usual["choices"]]
    found = [name for name in found if any(may_hold_options(row.get(name)) for row in head)]
    if len(apart) >= FEWEST_OPTIONS:
        found += apart
    others = (name for name in names if name not in found)
    return found if any(name.lower() in usual["question"] or _speaks(name, _QUESTION) for name in others) else []


def guess_columns(format_name: str, head: Sequence[Row]) -> dict[str, str]:
    """Return a column for each role of a format that one was found for; no column serves twice."""
    roles = ROLES[format_name]
    known = vote_columns(head) if format_name == PREFERENCE else step_columns(head) if format_name == STEPS else {}
    if format_name != MULTIPLE_CHOICE and not known:
        # An option is no answer: most are wrong.
        options = option_columns(head)
        head = [{name: value for name, value in row.items() if name not in options} for row in head]
    names = list(dict.fromkeys(name for row in head for name in row))
    same = _same_in_all(head)
    found: dict[str, str] = known

    def take(role: Role, name: str | None) -> None:
        if name is not None and role.name not in found and name not in found.values():
            found[role.name] = name

    for role in roles:
        fitting = [name for name in names if not (role.name in _SAID and name in same)]
        take(role, next((name for name in fitting if name.lower() in role.usual_names), None))
    for role in roles:
        hints = HINTS.get(role.name, ())
        fitting = [name for name in names if not (role.name in _SAID and name in same)]
        free = [name for name in fitting if name not in found.values()]
        take(role, next((name for name in free if _speaks_for(role.name, name, hints)), None))
    # An answer may be the label itself, and without its question the text.
    answer = found.pop("answer", None) if format_name == LABELED else None
    needed = [role for role in roles if role.required and role.name not in UNGUESSED]
    # Labels are easier to tell from texts than texts from labels.
    for role in sorted(needed, key=lambda role: role.name != "class"):
        varied = [{name: value for name, value in row.items() if name not in same} for row in head]
        fitting = [*_fitting(role, varied), *_fitting(role, head)]
        free = [name for name in fitting if name not in found.values()]
        # A worse answer is learned only where nothing else could be.
        take(role, min(free, key=lambda name: bool(WORSE & _words(name)), default=None))
    if answer is not None and answer not in found.values():
        found["answer"] = answer
    for role in [role for role in roles if role.name == "prompt"]:
        # Answers may hold their question; where another column asks, it is that.
        take(role, next((name for name in names if name not in found.values() and _asks(name, head)), None))
    return {role.name: found[role.name] for role in roles if role.name in found}


def _same_in_all(head: Sequence[Row]) -> set[str]:
    """Return the columns of one and the same value, in which nobody asks or answers."""
    if len(head) < FEWEST_ROWS:
        return set()
    names = {name for row in head for name in row}
    return {name for name in names if all(row.get(name) == head[0].get(name) for row in head)}


def examples_of(column: str, head: Sequence[Row]) -> list[str]:
    """Return the first different values of a column, each as one line."""
    values = (_one_line(row[column]) for row in head if row.get(column) not in (None, "", []))
    return list(islice(dict.fromkeys(values), NUM_EXAMPLES))


def _one_line(value: Any) -> str:  # Any: JSON values
    if _is_messages(value):
        first = message_list(value)[0]
        value = f"{first.get('role', first.get('from', ''))}: {first.get('content', first.get('value', ''))}"
    return " ".join(str(value).split())


def _fitting(role: Role, head: Sequence[Row]) -> list[str]:
    if role.name in ("messages", "conversations"):
        return list(dict.fromkeys(name for row in head for name, value in row.items() if _is_messages(value)))
    if role.name == "class":
        return _label_columns(head)
    lengths = _texts(head)
    if role.name == "text":
        return sorted(lengths, key=lambda name: -lengths[name])
    spoken = _by_what_they_say([name for name in lengths if _is_text(name, head)], lengths, head)
    if role.name in ("prompt", "instruction", "question"):
        return list(dict.fromkeys([*spoken, *reversed(lengths)]))
    # A number is an answer, too: sooner one behind the question than those before, which count the rows, or a date.
    names = list(lengths)
    behind = names.index(spoken[0]) + 1 if spoken else 0
    others = sorted([*names[behind:], *reversed(names[:behind])], key=lambda name: _is_date(name, head))
    return list(dict.fromkeys([*spoken[1:], *others]))


def _label_columns(head: Sequence[Row]) -> list[str]:
    """Return the columns that may be labels: first those of few different values, then numbers, then other short ones.
    """
    ranked = []
    for place, name in enumerate(dict.fromkeys(name for row in head for name in row)):
        labels = [held_label(row.get(name)) for row in head]
        if not all(labels) or max(map(len, labels)) > LONGEST_LABEL:
            continue
        num = len(set(labels))
        if num < len(labels):
            ranked.append((0, num, place, name))
        elif None not in map(number_of, labels):
            # The number of a row comes before what is measured.
            ranked.append((1, 0, -place, name))
        elif num <= MOST_DIFFERENT:
            ranked.append((2, sum(map(len, labels)), place, name))
    return [name for *_, name in sorted(ranked)]


def _by_what_they_say(names: list[str], lengths: Mapping[str, int], head: Sequence[Row]) -> list[str]:
    """Return columns of texts with the one of questions first, then that of answers, then the others."""
    asking = {name: sum(any(mark in str(row.get(name)) for mark in "?？") for row in head) for name in names}
    longest_first = sorted(names, key=lambda name: -lengths[name])
    question = max(names, key=lambda name: asking[name], default="")
    if asking.get(question, -1) >= FEWEST_QUESTIONS * len(head):
        return [question, *(name for name in longest_first if name != question)]
    # Answers are longer, and who makes a table begins with the question.
    both = sorted(longest_first[:2], key=names.index)
    if len(both) > 1 and lengths[both[0]] > MUCH_LONGER * lengths[both[1]]:
        both.reverse()
    return [*both, *longest_first[2:]]


def _asks(name: str, head: Sequence[Row]) -> bool:
    num_asking = sum(any(mark in row[name] for mark in "?？") for row in head if isinstance(row.get(name), str))
    return num_asking >= FEWEST_QUESTIONS * len(head)


def _is_date(name: str, head: Sequence[Row]) -> bool:
    return all(DATE.match(str(row.get(name) or "").strip()) for row in head)


def _texts(head: Sequence[Row]) -> dict[str, int]:
    """Characters of each column that holds texts."""
    lengths: dict[str, int] = {}
    for row in head:
        for name, value in row.items():
            if isinstance(value, str):
                lengths[name] = lengths.get(name, 0) + len(value)
    return lengths


def _is_messages(value: object) -> bool:
    items = message_list(value)
    return isinstance(items, list) and bool(items) and isinstance(items[0], dict)
