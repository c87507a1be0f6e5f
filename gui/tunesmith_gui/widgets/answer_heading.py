"""What stands above each answer of a preference pair where its text is shown."""

from __future__ import annotations

from PySide6.QtGui import QColor, QTextCharFormat

from tunesmith_gui.theme import font, tokens
from tunesmith_gui.tr import translate


def answer_heading(answer: str) -> tuple[str, QTextCharFormat]:
    """The line above an answer, "better" or "worse", with room above the second one."""
    better, worse = translate("AnswerHeading", "Better answer"), translate("AnswerHeading", "Worse answer")
    look = QTextCharFormat()
    look.setFont(font("strong"))
    look.setForeground(QColor(tokens().accent_text))
    return f"{better}\n" if answer == "better" else f"\n{worse}\n", look
