"""The card of several data files: how much of an epoch each gives, and how many of its rows are used."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QGridLayout, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.mixing import epoch_shares, with_replay
from tunesmith_gui.new_run.form import BY_READING, NewRunForm
from tunesmith_gui.new_run.number_box import NumberBox
from tunesmith_gui.new_run.setting_paths import MOST_ROWS, REPLAY, WEIGHT, setting_of, source_path
from tunesmith_gui.new_run.setting_text import help_text
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number, translate
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.path_combo import PathChoice, labels, short_name
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel, restyle

MOST_SHOWN = 40
"""Files with inputs of their own; with more, the window would take long to build them."""

BOX_LETTERS, NAME_LETTERS = 10, 12


class _FileRow:
    """The widgets of one data file, which stand in the grid of the card."""

    def __init__(self, card: SourcesCard, form: NewRunForm, place: int, name: str) -> None:
        self._form, self._place, self._name = form, place, name
        self._typing = ""
        self.name = ElidedLabel(name, mode=Qt.TextElideMode.ElideMiddle, parent=card)
        self.name.setMinimumWidth(self.name.fontMetrics().averageCharWidth() * NAME_LETTERS)
        self.boxes = {each: self._box(card, each, name) for each in (WEIGHT, MOST_ROWS, REPLAY)}
        self.share = SafeLabel(tone="muted", parent=card)
        # As wide as what may come, or the columns would move while somebody types.
        self.share.setMinimumWidth(self.share.fontMetrics().horizontalAdvance(_share_words(9999, 99999, 99999)))
        self.remove: IconButton | None = None
        if place:
            words = fill(translate("SourcesCard", "Remove %1"), name)
            remove = functools.partial(form.remove_source, place)
            self.remove = IconButton("close", words, remove, parent=card)
        self.problems: list[str] = []

    def _box(self, card: SourcesCard, name: str, file_name: str) -> NumberBox:
        setting = setting_of(source_path(self._place, name))
        box = NumberBox(whole=name == MOST_ROWS, parent=card)
        box.setFixedWidth(box.fontMetrics().averageCharWidth() * BOX_LETTERS)
        box.setAccessibleName(f"{core_text(setting.declaration.label)}: {file_name}")
        box.setAccessibleDescription(help_text(setting))
        set_tip(box, help_text(setting))
        empty = translate("SourcesCard", "all") if name == MOST_ROWS else translate("SourcesCard", "none")
        box.lineEdit().setPlaceholderText(empty)
        if name == WEIGHT:
            box.text_changed.connect(card.begin_weighing)
            box.editingFinished.connect(functools.partial(card.leave_weight, self._place))
        box.text_changed.connect(functools.partial(self._take, name))
        guard_wheel(box)
        return box

    def _take(self, name: str, text: str) -> None:
        self._typing = name
        path = source_path(self._place, name)
        self._form.set_text(path, "0" if name != MOST_ROWS and not text.strip() else text)
        self._typing = ""

    def refresh(self, error: TunesmithError | None) -> None:
        """Shows the form's values, and what is wrong with them or with the file."""
        problems = {name: self._form.problem(source_path(self._place, name)) for name in self.boxes}
        for name, box in self.boxes.items():
            text = self._form.text(source_path(self._place, name))
            if name != self._typing:
                box.set_text("" if name != MOST_ROWS and text == "0" else text)
            if bool(box.property("invalid")) != bool(problems[name]):
                box.setProperty("invalid", bool(problems[name]))
                restyle(box)
        self.problems = [core_text(error.message)] if error else []
        for name, problem in problems.items():
            if problem:
                label = core_text(setting_of(source_path(self._place, name)).declaration.label)
                self.problems.append(fill(translate("SourcesCard", "%1, %2: %3"), self._name, label, problem))


class SourcesCard(Card):
    """Hidden while there is one data file.

    Signals:
        weighed: nobody is giving weights any more, so what is wrong with them can be told.
    """

    weighed = Signal()

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("SourcesCard", "Data files"), parent=parent)
        self._form = form
        self.rows: list[_FileRow] = []
        self._paths: list[str] = []
        words = self.tr(
            "An epoch is as long as all files together. Without weights it has every row once. With weights, rows of a "
            "small file repeat and rows of a large file take turns."
        )
        self.body.addWidget(SafeLabel(words, role="caption", tone="muted", wrap=True, parent=self))
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(SPACE + SPACE // 2)
        self._grid.setVerticalSpacing(SPACE)
        self._grid.setColumnStretch(0, 1)
        self.body.addLayout(self._grid)
        names = (self.tr("File"), self.tr("Weight"), self.tr("Most rows"), self.tr("Replay, %"), self.tr("In an epoch"))
        heads = [SafeLabel(text, role="caption", tone="muted", parent=self) for text in names]
        for column, head in enumerate(heads):
            self._grid.addWidget(head, 0, column)
        self._replay_head = heads[3]
        self.further = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.further)
        capped = self.tr("Most rows limits which rows are used, not how often: by its weight a file can repeat them.")
        self.capped = SafeLabel(capped, role="caption", tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.capped)
        replay = self.tr(
            "To keep what the model knew, give a file of chats or general texts a replay share, such as 10%. After the "
            "run, Evaluate asks general questions and tells whether anything was forgotten."
        )
        self.replay = SafeLabel(replay, role="caption", tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.replay)
        self.problems = SafeLabel(role="caption", tone="error", wrap=True, parent=self)
        self.body.addWidget(self.problems)
        self._left: set[int] = set()
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._follow_focus)
        self.hide()

    def begin_weighing(self) -> None:
        """A person types a weight: the first of them has no effect until there is a second."""
        if not self._form.is_weighing:
            self._form.is_weighing, self._left = True, set()

    def leave_weight(self, place: int) -> None:
        """The input of a weight was left; with two of them, both were seen."""
        self._left.add(place)
        if len(self._left) > 1:
            self._end_weighing()

    def _follow_focus(self, _old: QWidget | None, now: QWidget | None) -> None:
        if now is not None and not self.isAncestorOf(now):
            self._end_weighing()

    def _end_weighing(self) -> None:
        if self._form.is_weighing:
            self._form.is_weighing = False
            self.weighed.emit()

    def show_files(self, num_rows: Sequence[int | None], errors: Sequence[TunesmithError | None]) -> None:
        """Shows the data files of the form.

        Args:
            num_rows: rows of each that are used, about; None where that can't be told.
            errors: what is wrong with each.
        """
        sources = self._form.spec.data.sources
        self.setVisible(len(sources) > 1)
        paths = [source.path for source in sources[:MOST_SHOWN]] if len(sources) > 1 else []
        if paths != self._paths:
            self._paths = paths
            self._build(labels([PathChoice(short_name(path), path) for path in paths]))
        more = len(sources) - len(paths) if paths else 0
        self.further.setText(fill(self.tr("Further files: %1. Set their weights in the spec."), number(more)))
        self.further.setVisible(more > 0)
        self.capped.setVisible(any(source.most_rows and source.weight for source in sources))
        replays = self._form.way == BY_READING or any(source.replay for source in sources)
        for label in (self.replay, self._replay_head):
            label.setVisible(replays)
        shares = self._shares(num_rows)
        for place, row in enumerate(self.rows):
            row.refresh(errors[place] if place < len(errors) else None)
            row.boxes[REPLAY].setVisible(replays)
            row.share.setText(shares[place] if shares else "")
        words = [problem for row in self.rows for problem in row.problems]
        self.problems.setText("\n".join(words))
        self.problems.setVisible(bool(words))

    def _shares(self, num_rows: Sequence[int | None]) -> list[str]:
        """What of an epoch comes from each file; nothing where that can't be told."""
        spec = self._form.spec
        if None in num_rows or len(num_rows) != len(spec.data.sources) or self._form.problems():
            return []
        kept = 1.0 if spec.evaluation.path else 1.0 - spec.evaluation.percent / 100
        numbers = [round(num * kept) for num in num_rows if num is not None]
        sources = spec.data.sources
        taken = with_replay(epoch_shares(numbers, [each.weight for each in sources]), [each.replay for each in sources])
        return [_share_words(num, each, sum(taken)) for num, each in zip(numbers, taken, strict=True)]

    def _build(self, names: Sequence[str]) -> None:
        had_focus = any(row.remove is not None and row.remove.hasFocus() for row in self.rows)
        for row in self.rows:
            for widget in (row.name, *row.boxes.values(), row.share, row.remove):
                if widget is not None:
                    widget.hide()
                    self._grid.removeWidget(widget)
                    widget.deleteLater()
        self.rows = [_FileRow(self, self._form, place, name) for place, name in enumerate(names)]
        for place, row in enumerate(self.rows):
            for column, widget in enumerate((row.name, *row.boxes.values(), row.share, row.remove)):
                if widget is not None:
                    self._grid.addWidget(widget, 1 + place, column)
        if had_focus and self.rows:
            self.rows[0].boxes[WEIGHT].setFocus(Qt.FocusReason.OtherFocusReason)

    def reveal(self, path: str) -> QWidget | None:
        """Puts the focus on the input of a setting; None when it has none here."""
        for place, row in enumerate(self.rows):
            for name, box in row.boxes.items():
                if path == source_path(place, name):
                    box.setFocus(Qt.FocusReason.OtherFocusReason)
                    return box
        return None


def _share_words(num_rows: int, num_taken: int, total: int) -> str:
    """About how many examples, their share, and how often each row comes."""
    parts = [fill(translate("SourcesCard", "about %1"), number(num_taken)), f"{num_taken / max(1, total):.0%}"]
    if num_rows and num_taken > num_rows:
        parts.append("× " + f"{num_taken / num_rows:.1f}".removesuffix(".0"))
    return "  ·  ".join(parts)
