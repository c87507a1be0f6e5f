"""Takes the expressions of the catalogue apart: the words that each match must hold, and a text that it matches.

`python -m tests.core.catalogue_expressions` writes the `key` fields of the catalogue anew after a change.
"""

from __future__ import annotations

import json
import re
from re import _constants as kinds
from re import _parser as parser
from typing import Any

from tunesmith_core.explain import catalogue

MAX_WORDS = 24
MIN_WORD_CHARS = 2

Nodes = list[tuple[Any, Any]]


def parse(expression: str) -> Nodes:
    """Return the parts of an expression as the catalogue compiles it."""
    return list(parser.parse(catalogue.pattern(expression).pattern, re.IGNORECASE | re.MULTILINE))


def keys(expression: str) -> list[str]:
    """Return words in lower case of which every match holds one; [""] when there are none."""
    words = _required(parse(expression))
    return sorted(words) if words and min(map(len, words)) >= MIN_WORD_CHARS else [""]


def _character(kind: Any, value: Any) -> str | None:
    if kind is kinds.LITERAL:
        return chr(value).lower()
    if kind is kinds.IN and all(part is kinds.LITERAL for part, _ in value):
        letters = {chr(code).lower() for _, code in value}
        return letters.pop() if len(letters) == 1 else None
    return None


def _is_space(kind: Any, value: Any) -> bool:
    if kind not in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) or value[0] < 1:
        return False
    inner = list(value[2])
    return len(inner) == 1 and inner[0] == (kinds.IN, [(kinds.CATEGORY, kinds.CATEGORY_SPACE)])


def _exact(nodes: Nodes) -> set[str] | None:
    """Return all texts that parts can match, None when they are not few."""
    texts = {""}
    for kind, value in nodes:
        letter = _character(kind, value)
        if letter is not None or _is_space(kind, value):
            choices: set[str] | None = {letter or " "}
        elif kind is kinds.SUBPATTERN:
            choices = _exact(list(value[3]))
        elif kind is kinds.BRANCH:
            parts = [_exact(list(branch)) for branch in value[1]]
            choices = None if None in parts else set().union(*parts)  # type: ignore[arg-type]
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) and value[:2] == (0, 1):
            inner = _exact(list(value[2]))
            choices = None if inner is None else inner | {""}
        else:
            choices = {""} if kind is kinds.AT else None
        if choices is None or len(texts) * len(choices) > MAX_WORDS:
            return None
        texts = {text + choice for text in texts for choice in choices}
    return texts


def _better(words: set[str] | None, others: set[str] | None) -> set[str] | None:
    others = {word.strip() for word in others or ()}
    if not others or "" in others:
        return words

    def merit(choice: set[str]) -> tuple[int, int]:
        return min(min(map(len, choice)), 12), -len(choice)

    return others if words is None or merit(others) > merit(words) else words


def _required(nodes: Nodes) -> set[str] | None:
    best: set[str] | None = None
    run = {""}
    for kind, value in nodes:
        if kind is kinds.AT:
            continue
        exact = _exact([(kind, value)])
        if exact and all(exact) and len(run) * len(exact) <= MAX_WORDS:
            run = {text + choice for text in run for choice in exact}
            continue
        best, run = _better(best, run), {""}
        if kind is kinds.SUBPATTERN:
            best = _better(best, _required(list(value[3])))
        elif kind is kinds.BRANCH:
            parts = [_required(list(branch)) for branch in value[1]]
            best = _better(best, None if None in parts else set().union(*parts))  # type: ignore[arg-type]
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT) and value[0] >= 1:
            best = _better(best, _required(list(value[2])))
    return _better(best, run)


def sample(expression: str) -> str:
    """Return a text that an expression matches: first branches, fewest repetitions."""
    return _sample(parse(expression))


def _sample(nodes: Nodes) -> str:
    text = ""
    for kind, value in nodes:
        if kind is kinds.LITERAL:
            text += chr(value)
        elif kind is kinds.IN:
            text += _member(value)
        elif kind is kinds.SUBPATTERN:
            text += _sample(list(value[3]))
        elif kind is kinds.BRANCH:
            text += _sample(list(value[1][0]))
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            text += " " if _is_space(kind, value) or _is_gap(value) else _sample(list(value[2])) * value[0]
        elif kind in (kinds.NOT_LITERAL, kinds.ANY):
            text += "x"
    return text


def _is_gap(repeat: Any) -> bool:
    """Whether a repetition stands for anything that may lie between two words."""
    kind, value = repeat[2][0]
    return repeat[0] == 0 and (kind is kinds.ANY or (kind is kinds.NOT_LITERAL and value == ord("\n")))


CATEGORIES = {
    kinds.CATEGORY_NOT_SPACE: "x",
    kinds.CATEGORY_NOT_WORD: " ",
    kinds.CATEGORY_DIGIT: "1",
    kinds.CATEGORY_WORD: "w",
    kinds.CATEGORY_SPACE: " ",
}


def _member(members: Nodes) -> str:
    if members[0][0] is kinds.NEGATE:
        return "人" if (kinds.RANGE, (0, 127)) in members else "x"
    kind, value = members[0]
    if kind is kinds.CATEGORY:
        return CATEGORIES[value]
    return chr(value[0] if kind is kinds.RANGE else value)


def write_keys() -> None:
    """Write the catalogue with its keys anew, a signature a line."""
    path = catalogue.FOLDER / "catalogue.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    lines = ["{", f'"version": {data["version"]},', '"causes": {']
    for number, (code, entries) in enumerate(data["causes"].items()):
        renewed = [{**entry, "key": keys(entry["match"])} for entry in entries]
        rows = [json.dumps(entry, ensure_ascii=False) for entry in renewed]
        lines += [f" {json.dumps(code)}: [", ",\n".join(f"  {row}" for row in rows)]
        lines.append(" ]" + ("," if number + 1 < len(data["causes"]) else ""))
    path.write_text("\n".join([*lines, "}", "}", ""]), encoding="utf-8")


if __name__ == "__main__":
    write_keys()
