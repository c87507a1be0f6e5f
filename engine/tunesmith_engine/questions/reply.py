"""Questions and answers in the words of a model: marks such as "Q:" and "A:", in the forms that models give them."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUESTION_WORDS = "q|question|frage|pregunta|pergunta|domanda|vraag|pytanie|вопрос|问题|問題|问|問|質問|질문"
ANSWER_WORDS = "a|answer|antwort|respuesta|resposta|risposta|antwoord|odpowiedź|réponse|ответ|答案|回答|答|답변|답"

_FORM = r"^[\s#>*\-\u2022]*(?:\d{{1,3}}\s*[.)\u3001]\s*)?[*_]*(?:{})\s*\d{{0,3}}[*_]*\s*[:\uff1a]\s*[*_]*\s*"
QUESTION = re.compile(_FORM.format(QUESTION_WORDS), re.IGNORECASE)
ANSWER = re.compile(_FORM.format(ANSWER_WORDS), re.IGNORECASE)
"""A line that begins with a mark: behind the sign of a list, numbered, bold, as a heading."""

_INLINE = re.compile(
    rf"(?<=[?\uff1f.!\u3002])[*_]*\s*(?=[*_]*(?:{ANSWER_WORDS})\s*\d{{0,3}}[*_]*\s*[:\uff1a])", re.IGNORECASE
)
"""Where the answer follows its question in the same line."""

_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u300c": "\u300d", "\u00ab": "\u00bb"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A question and its answer, either of which may be empty."""

    question: str
    answer: str

    @property
    def is_empty(self) -> bool:
        """Whether question or answer has no letter and no digit."""
        return not (_has_words(self.question) and _has_words(self.answer))

    @property
    def key(self) -> str:
        """What two questions have in common that are the same but for case, spaces and punctuation."""
        return "".join(filter(str.isalnum, self.question.casefold()))


def pairs_of(reply: str, *, is_whole: bool = True) -> list[Pair]:
    """Return the questions and answers of a reply, in order; none where it has no such form.

    Args:
        reply: what a model wrote.
        is_whole: False when it was stopped in the middle: its last pair is left out.
    """
    found: list[tuple[list[str], list[str]]] = []
    field: list[str] | None = None
    for line in _INLINE.sub("\n", reply).splitlines():
        if mark := QUESTION.match(line):
            found.append(([line[mark.end() :]], []))
            field = found[-1][0]
        elif (mark := ANSWER.match(line)) and found:
            field = found[-1][1]
            if field:
                # A second answer to the same question is none that was asked for.
                field = None
                continue
            field.append(line[mark.end() :])
        elif not line.strip():
            # What follows an empty line without a mark is talk; but a mark may stand alone in its line.
            field = field if field and not "".join(field).strip() else None
        elif field is not None:
            field.append(line)
    pairs = [Pair(_cleaned(question), _cleaned(answer)) for question, answer in found]
    return pairs if is_whole else pairs[:-1]


def _cleaned(lines: list[str]) -> str:
    text = "\n".join(line.strip() for line in lines).strip().strip("*_").strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text[0] not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))
