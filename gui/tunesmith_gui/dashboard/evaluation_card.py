"""The figures of the newest evaluation of a run, and the button that measures again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QWidget

from tunesmith_core import evaluations
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.protocol import Event
from tunesmith_gui.models.run_words import phase_word
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.safe_label import SafeLabel

Values = dict[str, Any]  # Any: JSON values


class EvaluationCard(Card):
    """Measures a run that has ended beside its base model."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.heading.setText(self.tr("Before and after the run"))
        self.evaluate = button(self.tr("Evaluate"), self._start, parent=self)
        self.cancel = button(self.tr("Cancel"), self._cancel, parent=self)
        self.add_action(self.evaluate)
        self.add_action(self.cancel)
        self.words = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.words)
        self.conclusion = SafeLabel(wrap=True, selectable=True, parent=self)
        self.body.addWidget(self.conclusion)
        self._table = QWidget(self)
        self.body.addWidget(self._table)
        self.notes = SafeLabel(tone="muted", wrap=True, selectable=True, parent=self)
        self.body.addWidget(self.notes)
        self._folder: Path | None = None
        self._task: OperationTask | None = None
        self._show_task()

    def set_run(self, folder: Path) -> None:
        """Show another run, and what is being measured of it; the run before is measured to its end."""
        self._leave()
        self._folder = folder
        self.set_found({})
        for task in operations().of(EVALUATE, self._spec()):
            self._follow(task)
            self._say(task.words)

    def set_found(self, found: Values) -> None:
        """Show the figures of an evaluation, {} for none."""
        fresh = QWidget(self)
        grid = QGridLayout(fresh)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(SPACE * 3)
        grid.setVerticalSpacing(SPACE // 2)
        difference = self.tr("Difference, 95% interval")
        heads = (self.tr("Measured"), self.tr("Before"), self.tr("After"), difference, self.tr("p"))
        rows: list[tuple[str, ...]] = []
        if found:
            rows = [
                (core_text(evaluations.METRICS.get(name, name)), *map(core_text, values))
                for name, *values in evaluations.figures(found)
            ]
        for line, cells in enumerate([heads, *rows] if rows else []):
            for place, cell in enumerate(cells):
                label = SafeLabel(cell, tone="text" if line else "muted", selectable=True, parent=fresh)
                side = Qt.AlignmentFlag.AlignLeft if place in (0, 3) else Qt.AlignmentFlag.AlignRight
                grid.addWidget(label, line, place, side)
        grid.setColumnStretch(len(heads), 1)
        self.body.replaceWidget(self._table, fresh)
        self._table.setParent(None)
        self._table.deleteLater()
        self._table = fresh
        fresh.setVisible(bool(rows))
        self.conclusion.setText(core_text(evaluations.conclusion(found)) if found else "")
        self.conclusion.setVisible(bool(found))
        self.notes.setText("\n".join(map(core_text, evaluations.notes(found))) if found else "")
        self.notes.setVisible(bool(found))
        if not found:
            self._say(self.tr("Answers the held-out rows with and without the adapter, and compares them."))
        elif self._task is None:
            self._say(fill(self.tr("Measured at step %1"), number(found["step"])))

    def _say(self, text: str, tone: str = "muted") -> None:
        self.words.setText(text)
        self.words.set_tone(tone)

    def _show_task(self) -> None:
        shown, hidden = (self.evaluate, self.cancel) if self._task is None else (self.cancel, self.evaluate)
        shown.show()
        if hidden.hasFocus():
            shown.setFocus()  # else Qt hands the keyboard to whatever comes next
        hidden.hide()

    def _spec(self) -> EvaluateSpec:
        return EvaluateSpec(RunFolder(str(self._folder)))

    def _start(self) -> None:
        if self._folder is None or self._task is not None:
            return
        task = operations().begin(EVALUATE, self._spec())
        task.describe(lambda: translate("EvaluationCard", "Evaluating %1"))
        self._follow(task)
        self._say(self.tr("Starting…"))
        task.start()

    def _follow(self, task: OperationTask) -> None:
        self._task = task
        task.happened.connect(self._on_event)
        task.succeeded.connect(self._on_success)
        task.failed.connect(self._on_failure)
        task.ended.connect(self._on_end)
        self._show_task()

    def _leave(self) -> None:
        """Look no longer; it goes on."""
        if self._task is not None:
            self._task.happened.disconnect(self._on_event)
            self._task.succeeded.disconnect(self._on_success)
            self._task.failed.disconnect(self._on_failure)
            self._task.ended.disconnect(self._on_end)
            self._task = None
        self._show_task()

    def _cancel(self) -> None:
        if self._task is not None:
            task = self._task
            self._on_end()
            task.cancel()

    def _on_end(self, _outcome: object = None) -> None:
        """It ended without an answer; another place of the window may have canceled it."""
        self._leave()
        self._say(self.tr("The evaluation was canceled."))

    def _on_event(self, event: Event) -> None:
        if event.type == "phase":
            words = phase_word(str(event.data.get("name") or ""))
            done, total = event.data.get("done"), event.data.get("total")
            counted = fill(self.tr("%1: %2 of %3"), words, number(done or 0), number(total)) if total else words
            self._say(counted)

    def _on_success(self, found: Values) -> None:
        self._leave()
        self.set_found(found)

    def _on_failure(self, error: TunesmithError) -> None:
        self._leave()
        self._say("\n".join(core_text(text) for text in (error.message, error.hint) if text), "error")
