"""What a model is asked for: questions about a passage, in the language of the passage and a form that can be read."""

from __future__ import annotations

from tunesmith_core.language_names import LANGUAGES
from tunesmith_engine.questions.passages import Passage

ENGLISH = (
    "{text}\n\nWrite {number} different questions about this text, each with its answer. Use only what the text says, "
    "and name things instead of saying \"the text\". Write in {language}. Begin each question with \"Q:\" and put its "
    "answer in the next line, after \"A:\"."
)
CHINESE = (
    "{text}\n\n请根据上面的文字写出{number}个不同的问题，并回答每个问题。只使用文字中的内容，写出事物的名称，不要说“本文”。"
    "用中文书写。每个问题单独一行，以“问：”开头；答案写在下一行，以“答：”开头。"
)
"""The text comes first: small models keep best to what they read last."""

MARKS = {"zh": "问："}
"""With which the reply begins, so that a small model keeps to the form; "Q:" in other languages."""

END_OF_THINKING = "\n\n</think>\n\n"
"""Put behind a prompt whose template lets the model think first: it has nothing to find out."""

TOKENS_OF_A_PAIR = 96
"""Room for a question and its answer."""


def request(passage: Passage, number: int) -> list[dict[str, str]]:
    """Return the conversation that asks for so many questions."""
    words = CHINESE if passage.language == "zh" else ENGLISH
    language = LANGUAGES.get(passage.language, "the language of the text")
    return [{"role": "user", "content": words.format(number=number, language=language, text=passage.text)}]


def beginning(passage: Passage, *, thinks: bool) -> str:
    """Return the words with which the reply begins."""
    return (END_OF_THINKING if thinks else "") + MARKS.get(passage.language, "Q:")
