"""What stands above answers that people called better, worse, good or bad, where their text is shown."""

from __future__ import annotations

from PySide6.QtGui import QColor, QTextCharFormat

from tunesmith_gui.theme import font, tokens
from tunesmith_gui.tr import translate


def answer_heading(answer: str) -> tuple[str, QTextCharFormat]:
    """The line above an answer, "better" or "worse", with room above the second one; or "good" or "bad"."""
    words = {
        "better": translate("AnswerHeading", "Better answer"),
        "worse": translate("AnswerHeading", "Worse answer"),
        "good": translate("AnswerHeading", "Good answer"),
        "bad": translate("AnswerHeading", "Bad answer"),
    }[answer]
    look = QTextCharFormat()
    look.setFont(font("strong"))
    look.setForeground(QColor(tokens().accent_text))
    return f"\n{words}\n" if answer == "worse" else f"{words}\n", look
