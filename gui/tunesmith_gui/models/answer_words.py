"""How an answer of a model is shown everywhere in the window."""

from __future__ import annotations

from tunesmith_gui.tr import translate


def answer_words(text: str) -> tuple[str, str]:
    """Return what is shown of an answer and its tone: blank space would hide that the model said nothing."""
    return (text, "text") if text.strip() else (translate("Answer", "(empty)"), "muted")
