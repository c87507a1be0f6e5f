"""What somebody asked or a model answered: as long as it is, and words of any length in a column of any width."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from tunesmith_gui.widgets.safe_label import SafeLabel

BESIDE_LETTERS = 64
"""Letters of a line from which on two answers stand beside each other."""
_MOST_LETTERS = 200_000
_LONGEST_WORD = 24
"""A model that trains badly writes without spaces; half of the narrowest line with two answers has room for so many."""


class SpokenLabel(SafeLabel):
    """A label for text of a conversation."""

    def __init__(self, text: str = "", *, role: str = "body", parent: QWidget | None = None) -> None:
        super().__init__(
            text,
            role=role,
            wrap=True,
            selectable=True,
            most=_MOST_LETTERS,
            longest_word=_LONGEST_WORD,
            parent=parent,
        )
