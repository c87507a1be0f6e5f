"""The first choice of a run: the way to teach, with one line that says what it does and which data it needs."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from tunesmith_gui.new_run.form import (
    BY_CLASS,
    BY_EXAMPLE,
    BY_FULL,
    BY_LABEL,
    BY_PREFERENCE,
    BY_READING,
    BY_REWARD,
    BY_SCORE,
    BY_STEPS,
    BY_TEACHER,
    WAYS,
)
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.segmented import Segmented


def way_word(way: str) -> str:
    """Name of a way to teach."""
    return {
        BY_EXAMPLE: translate("WayBar", "Teach by example"),
        BY_PREFERENCE: translate("WayBar", "Prefer this over that"),
        BY_LABEL: translate("WayBar", "Good and bad answers"),
        BY_SCORE: translate("WayBar", "Score answers"),
        BY_STEPS: translate("WayBar", "Check the steps of an answer"),
        BY_CLASS: translate("WayBar", "Sort texts into classes"),
        BY_FULL: translate("WayBar", "Full fine-tune"),
        BY_REWARD: translate("WayBar", "Reward what is right"),
        BY_READING: translate("WayBar", "Read documents"),
        BY_TEACHER: translate("WayBar", "Learn from a bigger model"),
    }[way]


def way_words(way: str) -> str:
    """What a way to teach does, and which data it needs."""
    return {
        BY_EXAMPLE: translate(
            "WayBar",
            "The model learns to answer like the examples. The data needs chats, prompts with responses, or text.",
        ),
        BY_PREFERENCE: translate(
            "WayBar",
            "The model learns which of two answers is better. Each prompt needs a better and a worse answer.",
        ),
        BY_LABEL: translate(
            "WayBar",
            "The model learns to write more like the good answers and less like the bad ones. Each answer needs a "
            "label, such as a thumb up or down.",
        ),
        BY_REWARD: translate(
            "WayBar",
            "The model tries several answers to each prompt and learns from the best. The data needs prompts with "
            "right answers.",
        ),
        BY_SCORE: translate(
            "WayBar",
            "The model learns to give answers a score and writes none. Each prompt needs a better and a worse answer.",
        ),
        BY_STEPS: translate(
            "WayBar",
            "The model learns which steps of a solution are right, and writes none. Each solution needs its steps, "
            "and a label for each step.",
        ),
        BY_CLASS: translate(
            "WayBar",
            "The model learns which label a text has, or which number, and writes none. Each text needs a label.",
        ),
        BY_FULL: translate(
            "WayBar",
            "The whole model learns to answer like the examples, not only a small adapter. This needs several times "
            "the memory and disk space.",
        ),
        BY_TEACHER: translate(
            "WayBar",
            "The model learns word by word what a bigger one would say. The data needs chats, or prompts with "
            "responses.",
        ),
        BY_READING: translate(
            "WayBar",
            "The model learns the words and facts of texts by reading them whole. The data needs text files, Markdown, "
            "web pages, PDF, Word or a folder of them. A second file with chats can be mixed in, so that it keeps what "
            "it knew.",
        ),
    }[way]


class WayBar(Card):
    """Segments and the line.

    Signals:
        chosen: (way) one of WAYS.
    """

    chosen = Signal(str)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        title = translate("WayBar", "How to teach")
        super().__init__(title, parent=parent)
        options = [(way, way_word(way)) for way in WAYS]
        self.segments = Segmented(title, options, wraps=True, parent=self)
        self.segments.changed.connect(self.chosen)
        self.body.addWidget(self.segments, 0, Qt.AlignmentFlag.AlignLeft)
        self.words = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.words)
        self.show_way(BY_EXAMPLE)

    def show_way(self, way: str) -> None:
        """Shows which way is chosen."""
        self.segments.blockSignals(True)
        self.segments.set_value(way)
        self.segments.blockSignals(False)
        self.words.setText(way_words(way))
