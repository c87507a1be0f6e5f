"""The plan beside the form: will it fit, in which parts, how long, how sure, and what would make it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core import held_out
from tunesmith_core.planner import Saving
from tunesmith_gui.models.model_words import verdict_words
from tunesmith_gui.new_run.fit_meter import FitMeter, Swatch
from tunesmith_gui.new_run.looks import PlanFacts
from tunesmith_gui.new_run.start_bar import LINK_INSET_PX
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, duration, fill, number, size, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card, line
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip

GIB = 1024**3


def part_word(part: str) -> str:
    """Name of a part of the plan."""
    return {
        "weights": translate("PlanCard", "Base model"),
        "adapter": translate("PlanCard", "Adapter and optimizer"),
        "training": translate("PlanCard", "Gradients and optimizer"),
        "activations": translate("PlanCard", "Intermediate results"),
        "logits": translate("PlanCard", "Predictions"),
        "teacher": translate("PlanCard", "Bigger model"),
        "answers": translate("PlanCard", "Answers"),
        "scoring": translate("PlanCard", "Reward models"),
        "runtime": translate("PlanCard", "Libraries"),
    }.get(part, part)


COLOURS = {
    "weights": 0,
    "adapter": 1,
    "training": 1,
    "activations": 2,
    "logits": 3,
    "runtime": 4,
    "teacher": 5,
    "answers": 5,
    "scoring": 1,
}
"""Number of the colour by part: the same in every way to teach."""


def part_note(part: str) -> str:
    """What a part of the plan holds, by the terms of the field; "" where the name says it."""
    return {
        "adapter": translate("PlanCard", "The weights that are trained, their gradients and the optimizer's state."),
        "training": translate("PlanCard", "What trained weights need beside themselves: gradients and states."),
        "activations": translate("PlanCard", "Activations: what the layers keep until the gradients are computed."),
        "logits": translate("PlanCard", "Logits: a score for each token of the vocabulary."),
        "answers": translate("PlanCard", "Keys, values and logits of the answers that the model writes at once."),
        "runtime": translate("PlanCard", "What PyTorch and other libraries take for themselves."),
    }.get(part, "")


def certainty_word(certainty: str) -> str:
    """How sure a plan is."""
    return {
        "low": translate("PlanCard", "rough estimate"),
        "medium": translate("PlanCard", "estimate"),
        "high": translate("PlanCard", "close estimate"),
    }.get(certainty, certainty)


def gib(num_bytes: int) -> str:
    """Bytes in GiB with one digit behind the point, two below a tenth."""
    value = num_bytes / GIB
    return number(value, 2 if value < 0.1 else 1)


class PlanCard(Card):
    """Shows a PlanFacts.

    Signals:
        check_asked: the person wants a real step to be measured.
        check_cancelled: the person ends the measuring.
        fix_chosen: (dict of setting path -> value).
    """

    check_asked = Signal()
    check_cancelled = Signal()
    fix_chosen = Signal(object)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("PlanCard", "Plan"), parent=parent)
        self.chip = StatusChip("", parent=self)
        self.add_action(self.chip)
        self.device = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.device)
        self._content = QWidget(self)
        self._column = QVBoxLayout(self._content)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE + SPACE // 2)
        self.notes = SafeLabel(tone="warn", wrap=True, selectable=True, parent=self._content)
        self._column.addWidget(self.notes)
        self.hold_out = button("", self._hold_out_more, kind="link", parent=self._content)
        self._column.addWidget(self.hold_out, 0, Qt.AlignmentFlag.AlignLeft)
        self._hold_out_percent: float | None = None
        self.meter = FitMeter(self.tr("Memory plan"), parent=self._content)
        self._column.addWidget(self.meter)
        self._parts = QGridLayout()
        self._parts.setHorizontalSpacing(SPACE)
        self._parts.setVerticalSpacing(SPACE // 2)
        self._parts.setColumnStretch(1, 1)
        self._column.addLayout(self._parts)
        self._column.addWidget(line(self._content))
        total = QHBoxLayout()
        self.total = SafeLabel(role="strong", wrap=True, parent=self._content)
        self.percent = SafeLabel(role="strong", parent=self._content)
        total.addWidget(self.total, 1)
        total.addWidget(self.percent, 0, Qt.AlignmentFlag.AlignTop)
        self._column.addLayout(total)
        measuring = self.tr("Measuring how long the examples are. The memory may change.")
        self.measuring = SafeLabel(measuring, role="caption", tone="muted", wrap=True, parent=self._content)
        self._column.addWidget(self.measuring)
        self._rows = QGridLayout()
        self._rows.setHorizontalSpacing(SPACE)
        self._rows.setVerticalSpacing(SPACE // 2)
        self._rows.setColumnStretch(1, 1)
        self._column.addLayout(self._rows)
        self.pace = SafeLabel(role="caption", tone="muted", wrap=True, parent=self._content)
        self._column.addWidget(self.pace)
        self.check = button(self.tr("Check the plan"), self._check_or_cancel, icon_name="bolt", parent=self._content)
        self._column.addWidget(self.check)
        self.check_note = SafeLabel(role="caption", tone="muted", wrap=True, parent=self._content)
        self._column.addWidget(self.check_note)
        self._fixes = QWidget(self._content)
        self._fix_column = QVBoxLayout(self._fixes)
        self._fix_column.setContentsMargins(0, 0, 0, 0)
        self._fix_column.setSpacing(SPACE // 2)
        self._column.addWidget(self._fixes)
        self.body.addWidget(self._content)
        self._cells: list[QWidget] = []
        self._checking = self._measured = False
        # Not Maximum: words that wrap need more than the height that is asked for at the best width.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.show_nothing(self.tr("Choose a model and data to see how much memory the run needs."))
        self.show_checking(False)

    @property
    def summary(self) -> str:
        """The verdict in one line, or why there is none."""
        if self._content.isHidden():
            return self.device.text()
        return fill(self.tr("%1: %2"), self.chip.text, self.total.text())

    def show_nothing(self, words: str) -> None:
        """There is no plan, and why."""
        self.chip.hide()
        self._content.hide()
        self.device.setText(words)

    def show_plan(self, facts: PlanFacts, *, has_data: bool = True) -> None:
        """Shows a plan; without data it is about examples as long as the whole context."""
        plan, hardware = facts.plan, facts.hardware
        total = facts.total_bytes
        share = total / max(1, plan.available_bytes)
        verdict = facts.verdict
        words, tone = verdict_words(verdict)
        self.chip.set_state(words, tone)
        self.chip.show()
        name = hardware.name if hardware.device == "cuda" else self.tr("Processor (CPU), no GPU")
        free = fill(self.tr("%1 of %2 GiB free"), gib(plan.available_bytes), gib(hardware.total_bytes))
        self.device.setText(f"{name}\n{free}")
        for cell in self._cells:
            cell.deleteLater()
        self._cells = []
        if facts.measured_bytes is None:
            parts: Mapping[str, int] = plan.parts
        else:
            parts = {translate("PlanCard", "Measured peak"): facts.measured_bytes}
        for row, (part, num_bytes) in enumerate(parts.items()):
            value = gib(num_bytes)
            is_exact = part != "adapter" or plan.adapter_is_exact
            self._add_part(row, part, value if is_exact else self._about(value))
        sum_words = fill(self.tr("%1 of %2 GiB"), gib(total), gib(plan.available_bytes))
        self.total.setText(sum_words)
        self.percent.setText(f"{number(share * 100)}%")
        coloured = [(COLOURS.get(part, 0), num_bytes) for part, num_bytes in parts.items()]
        self.meter.set_parts(coloured, plan.available_bytes, f"{sum_words}, {words}")
        self._measured = facts.measured_bytes is not None
        if not self._checking:
            self.show_checking(False)
        notes = [core_text(note) for note in facts.notes]
        if not has_data:
            notes.append(self.tr("A rough estimate until data is chosen."))
        elif verdict == "unmeasured":
            notes.append(self.tr("Planned for examples as long as the whole context. Check the plan to measure yours."))
        self.notes.setText("\n\n".join(notes))
        self.notes.setVisible(bool(notes))
        self.measuring.setVisible(facts.is_measuring)
        self._show_hold_out(facts.hold_out_percent)
        self._show_rows(facts)
        self._show_fixes(facts)
        self._content.show()

    def show_checking(self, checking: bool, note: str = "", tone: str = "muted") -> None:
        """The measuring began or ended; `note` says what came of it."""
        self._checking = checking
        self.check.setText(self.tr("Cancel the check") if checking else self.tr("Check the plan"))
        self.check.setAccessibleName(self.check.text())
        explain = self.tr("Trains one step on the longest examples to measure memory and time.")
        self.check.setAccessibleDescription(explain)
        set_tip(self.check, explain)
        idle = "" if self._measured else explain
        self.check_note.setText(note or (self.tr("Training one step on the longest examples…") if checking else idle))
        self.check_note.set_tone(tone)
        self.check_note.setVisible(bool(self.check_note.text()))

    def _check_or_cancel(self) -> None:
        (self.check_cancelled if self._checking else self.check_asked).emit()

    def _add_part(self, row: int, part: str, value: str) -> None:
        name = self._label(part_word(part))
        set_tip(name, part_note(part))
        name.setAccessibleDescription(part_note(part))
        swatch = Swatch(COLOURS.get(part, 0), parent=self._content)
        cells = (swatch, name, self._label(value), self._label("GiB", "muted"))
        for column, cell in enumerate(cells):
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            self._parts.addWidget(cell, row, column, right if column == 2 else Qt.AlignmentFlag.AlignVCenter)
            self._cells.append(cell)

    def _show_rows(self, facts: PlanFacts) -> None:
        plan = facts.plan
        unknown = self.tr("not known yet")
        steps = unknown if plan.total_steps is None else number(plan.total_steps)
        if plan.total_steps is not None and not facts.are_steps_exact:
            steps = self._about(steps)
        time = unknown
        if plan.seconds is not None:
            low, high = map(duration, plan.seconds)
            time = self._about(low) if low == high else fill(self.tr("%1 to %2"), low, high)
        pace = fill(self.tr("Time based on the run “%1” with the same model and method."), facts.time.run)
        if plan.seconds is None:
            pace = self.tr("No run like this one has finished on this device. Check the plan to measure the time.")
        self.pace.setText(pace)
        self.pace.setVisible(bool(facts.time.run) if plan.seconds is not None else plan.total_steps is not None)
        is_of_steps = plan.seconds is not None and facts.time.other_s is None
        sure = self.tr("measured") if facts.measured_bytes is not None else certainty_word(plan.certainty)
        disk = size(plan.disk_bytes)
        least = plan.least_bytes < (facts.measured_bytes or plan.total_bytes)
        rows = (
            # A run takes spare memory to be faster and gets along with less.
            *(((self.tr("Minimum memory"), size(plan.least_bytes)),) if least else ()),
            (self.tr("Steps"), steps),
            (self.tr("Time of the steps") if is_of_steps else self.tr("Time"), time),
            (self.tr("Written to disk"), disk if plan.adapter_is_exact else self._about(disk)),
            (self.tr("Accuracy"), sure),
        )
        for row, (name, value) in enumerate(rows):
            label, shown = self._label(name, "muted"), self._label(value)
            self._rows.addWidget(label, row, 0)
            self._rows.addWidget(shown, row, 1, Qt.AlignmentFlag.AlignRight)
            self._cells += [label, shown]

    def _show_fixes(self, facts: PlanFacts) -> None:
        fixes = facts.plan.fixes if facts.verdict != "fits" else ()
        self._fixes.setVisible(bool(fixes))
        if not fixes:
            return
        heading = SafeLabel(self.tr("Ways to make it fit"), role="strong", wrap=True, parent=self._fixes)
        self._fix_column.addWidget(heading)
        self._cells.append(heading)
        for fix in fixes:
            limit = dict(fix.changes).get("data.context_length")
            self._add_fix(fix, facts.num_longer(limit) if limit else None)

    def _add_fix(self, fix: Saving, num_cut: int | None) -> None:
        changes = dict(fix.changes)
        saved = gib(fix.saved_bytes)
        words = fill(self.tr("Use %1"), core_text(fix.label))
        each = button(words, lambda: self._choose(changes), kind="link", parent=self._fixes)
        each.setAccessibleDescription(fill(self.tr("saves %1 GiB"), saved))
        saving = SafeLabel(fill(self.tr("−%1 GiB"), saved), tone="muted", parent=self._fixes)
        # What has no room beside its button stands below it: a scroll bar may take some of the width.
        row = FlowRow((each, saving), self._fixes)
        self._fix_column.addWidget(row)
        self._cells.append(row)
        if num_cut:
            words = fill(self.tr("Examples longer than that: at least %1"), number(num_cut))
            note = SafeLabel(words, role="caption", tone="warn", wrap=True, parent=self._fixes)
            note.setContentsMargins(LINK_INSET_PX, 0, 0, 0)
            self._fix_column.addWidget(note)
            self._cells.append(note)

    def _show_hold_out(self, percent: float | None) -> None:
        self._hold_out_percent = percent
        if percent is None and self.hold_out.hasFocus():
            self.check.setFocus()  # else Qt hands the keyboard to the side bar
        self.hold_out.setVisible(percent is not None)
        if percent is not None:
            self.hold_out.setText(core_text(held_out.action(percent)))
            self.hold_out.setAccessibleName(self.hold_out.text())

    def _hold_out_more(self) -> None:
        self._choose({"evaluation.percent": self._hold_out_percent})

    def _choose(self, changes: dict[str, Any]) -> None:  # Any: values of settings
        self.fix_chosen.emit(changes)

    def _about(self, value: str) -> str:
        return fill(self.tr("about %1"), value)

    def _label(self, words: str, tone: str = "text") -> SafeLabel:
        return SafeLabel(words, tone=tone, parent=self._content)
