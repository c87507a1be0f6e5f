"""What stands above each answer of a preference pair where its text is shown."""

from __future__ import annotations

from PySide6.QtGui import QColor, QTextCharFormat

from tunesmith_gui.theme import font, tokens
from tunesmith_gui.tr import translate


def answer_word(answer: str) -> str:
    """Name of an answer of a pair, "better" or "worse"."""
    better, worse = translate("AnswerHeading", "Better answer"), translate("AnswerHeading", "Worse answer")
    return better if answer == "better" else worse


def answer_heading(answer: str) -> tuple[str, QTextCharFormat]:
    """The line above an answer, with room above the second one."""
    look = QTextCharFormat()
    look.setFont(font("strong"))
    look.setForeground(QColor(tokens().accent_text))
    room = "" if answer == "better" else "\n"
    return f"{room}{answer_word(answer)}\n", look
