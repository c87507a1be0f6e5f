"""What the Data page shows while no file is open: where to drop one, the files used lately, and the samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QFrame, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_assets import samples
from tunesmith_gui.data.library_card import LibraryCard
from tunesmith_gui.icons import pixmap
from tunesmith_gui.page import page_column
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.data_words import data_kinds
from tunesmith_gui.widgets.page_header import PageHeader
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel


def sample_path(language: str) -> str:
    """The rows of a sample that ships with the program."""
    return str(samples.sample_folder(language) / "train.jsonl")


class DataHome(QWidget):
    """Ways to open a file.

    Signals:
        chosen: (str) the path of one.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._recent: list[str] = []
        self._recent_widgets: list[QWidget] = []
        column = page_column(self)
        words = self.tr("Look at your rows, see what a model learns from them, and repair what is wrong.")
        column.addWidget(PageHeader(self.tr("Data"), words, parent=self))
        column.addWidget(self._build_drop_area())
        self.recent_card = Card(self.tr("Recent files"), parent=self)
        self._recent_rows = QGridLayout()
        self._recent_rows.setHorizontalSpacing(SPACE * 2)
        self._recent_rows.setVerticalSpacing(SPACE // 2)
        self._recent_rows.setColumnStretch(1, 1)
        self.recent_card.body.addLayout(self._recent_rows)
        self.recent_card.hide()
        column.addWidget(self.recent_card)
        self.library = LibraryCard(self)
        column.addWidget(self.library)
        column.addWidget(self._build_samples())
        column.addStretch(1)
        theme().changed.connect(self._draw_icon)
        self._draw_icon()

    def _build_drop_area(self) -> QFrame:
        frame = QFrame(self)
        frame.setProperty("drop", True)
        column = QVBoxLayout(frame)
        column.setContentsMargins(SPACE * 2, SPACE * 3, SPACE * 2, SPACE * 3)
        column.setSpacing(SPACE)
        self._icon = SafeLabel(parent=frame)
        column.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignHCenter)
        kinds = self.tr(
            "JSONL, JSON, CSV, Excel, OpenDocument, Parquet, Arrow, PDF, Word, HTML, Markdown, text, "
            "also as gz, zst or ZIP"
        )
        for words, role, tone in (
            (self.tr("Drop a file here"), "heading", "text"),
            (kinds, "body", "muted"),
            (self.tr("The file itself is never changed."), "body", "muted"),
        ):
            label = SafeLabel(words, role=role, tone=tone, wrap=True, parent=frame)
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            column.addWidget(label)
        self.choose = button(self.tr("Choose a file…"), self.ask, kind="primary", icon_name="folder", parent=frame)
        column.addWidget(self.choose, 0, Qt.AlignmentFlag.AlignHCenter)
        return frame

    def _build_samples(self) -> Card:
        card = Card(self.tr("Samples"), parent=self)
        words = self.tr("160 short chats about an invented herb garden. A small model learns them in minutes.")
        card.body.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=card))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        names = {"en": self.tr("English sample"), "zh": self.tr("Chinese sample")}
        self.samples = {
            language: button(names[language], self._opener(sample_path(language)), icon_name="sample", parent=card)
            for language in samples.LANGUAGES
        }
        for each in self.samples.values():
            row.addWidget(each)
        row.addStretch(1)
        card.body.addLayout(row)
        return card

    def set_recent(self, recent: Sequence[str]) -> None:
        """Shows the files used lately."""
        if list(recent) == self._recent:
            return
        self._recent = list(recent)
        for widget in self._recent_widgets:
            self._recent_rows.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self._recent_widgets = []
        for place, text in enumerate(recent):
            path = Path(text)
            name = button(path.name, self._opener(text), kind="link", icon_name="file", parent=self)
            name.setAccessibleDescription(fill(self.tr("in %1"), path.parent))
            folder = ElidedLabel(str(path.parent), tone="muted", mode=Qt.TextElideMode.ElideMiddle, parent=self)
            self._recent_rows.addWidget(name, place, 0, Qt.AlignmentFlag.AlignLeft)
            self._recent_rows.addWidget(folder, place, 1)
            self._recent_widgets += [name, folder]
        self.recent_card.setVisible(bool(recent))

    def _opener(self, path: str) -> Callable[[], None]:
        return lambda: self.chosen.emit(path)

    def ask(self) -> None:
        """Asks for a file."""
        folder = str(Path(self._recent[0]).parent) if self._recent else ""
        path, _ = QFileDialog.getOpenFileName(self, self.tr("Choose a data file"), folder, data_kinds())
        if path:
            self.chosen.emit(path)

    def _draw_icon(self) -> None:
        self._icon.setPixmap(pixmap("drop", "accent", round(40 * theme().font_scale)))
