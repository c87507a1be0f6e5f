"""What is wrong with the rows: each rule with its count, what is done about it, and the rows themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QMargins, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QHeaderView,
    QStackedWidget,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.language_names import language_name
from tunesmith_core.operations.kinds.data import CheckDataSpec
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec
from tunesmith_gui.data.copy_name import CSV, JSON_LINES, ask_for_copy
from tunesmith_gui.data.kept_check import kept_check
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.icons import icon
from tunesmith_gui.plain_text import add_choice, line, set_item_tip, tree_item
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, duration, fill, listed, number, translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.progress_bar import ProgressBar
from tunesmith_gui.widgets.row_words import number_words
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide

_ROW_ROLE = int(Qt.ItemDataRole.UserRole)
_RULE_ROLE = _ROW_ROLE + 1
_ICONS = {"error": ("error", "error"), "warning": ("warning", "warn")}

Problem = dict[str, Any]  # Any: JSON values


def action_words(action: str) -> str:
    """What is done about a row."""
    return {
        "keep": translate("Problems", "Keep"),
        "skip": translate("Problems", "Leave out"),
        "drop": translate("Problems", "Leave out"),
        "repair": translate("Problems", "Repair"),
        "truncate": translate("Problems", "Cut"),
        "split": translate("Problems", "Split"),
    }.get(action, action)


class ProblemsPane(QWidget):
    """Checks the data when it is first looked at.

    Signals:
        found: (list of {path, line, row, message}) rows with problems.
        unknown: the check has ended without telling any, or can't begin; the pane says why.
        row_asked: ({path, line, row}) this row is to be seen.
        save_asked: (Path, dict of rule -> action) a repaired copy is wanted.
        setup_asked: the training environment is to be installed.
    """

    found = Signal(object)
    unknown = Signal()
    row_asked = Signal(object)
    actions_chosen = Signal()
    save_asked = Signal(object, object)
    setup_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.kind = ""
        """Of the file, which tells how its rows are counted."""
        self.rows: Rows | None = None
        """That are open, with what was changed in them."""
        self._spec: RunSpec | None = None
        self._folder = self._state_of_files = ""
        self._waits = self._fixes = False  # for the check; to save a repaired copy then
        self._result: dict[str, Any] | None = None  # Any: JSON values
        self._combos: dict[str, QComboBox] = {}
        self._is_shown_now = False
        self._state: QWidget | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.summary = SafeLabel(wrap=True, parent=self)
        column.addWidget(self.summary)
        words = self.tr("Rows were changed after this check. Check again to see what is wrong with them now.")
        self.outdated = SafeLabel(words, tone="warn", wrap=True, parent=self)
        self.outdated.hide()
        column.addWidget(self.outdated)
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self._build_waiting())
        self.tree = self._build_tree()
        self._stack.addWidget(self.tree)
        column.addWidget(self._stack, 1)
        self.again = button(self.tr("Check again"), self.check_again, icon_name="refresh", parent=self)
        self.save = button(self.tr("Fix and save as…"), self._ask_where, kind="primary", icon_name="save", parent=self)
        hint = self.tr("Choose what is done about each problem. Your file stays as it is.")
        self.hint = SafeLabel(hint, tone="muted", wrap=True, parent=self)
        self._foot = SideBySide(self.hint, FlowRow((self.again, self.save), self), first_letters=36, parent=self)
        column.addWidget(self._foot)
        self._foot.hide()
        check = kept_check()
        for signal, slot in ((check.happened, self._follow), (check.succeeded, self._take), (check.failed, self._fail)):
            signal.connect(slot)
        # Queued: the lists know their new font only after the theme has told everybody.
        theme().changed.connect(self._size_tree, Qt.ConnectionType.QueuedConnection)

    def _build_waiting(self) -> QWidget:
        waiting = QWidget(self)
        column = QVBoxLayout(waiting)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.progress_words = SafeLabel(tone="muted", wrap=True, parent=waiting)
        self.bar = ProgressBar(waiting)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(self.tr("Progress of the check"))
        self.cancel = button(self.tr("Cancel"), self._cancel, parent=waiting)
        for widget in (self.progress_words, self.bar):
            column.addWidget(widget)
        column.addWidget(self.cancel, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        return waiting

    def _build_tree(self) -> QTreeWidget:
        tree = QTreeWidget(self)
        tree.setAccessibleName(self.tr("Problems"))
        tree.setHeaderLabels([self.tr("Problem"), self.tr("Rows"), self.tr("What is done")])
        tree.setTabKeyNavigation(False)
        tree.header().setStretchLastSection(False)
        tree.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        tree.itemActivated.connect(self._open)
        tree.itemClicked.connect(self._open)
        tree.itemExpanded.connect(self._fill_rule)
        return tree

    @property
    def _problems(self) -> list[Problem]:
        """Not in the items of the tree: Qt makes plain texts of messages, which can't be translated any more."""
        return list(self._result["problems"]) if self._result is not None else []

    @property
    def num_problem_rows(self) -> int | None:
        """How many rows have problems; None before the check has ended."""
        return int(self._result["num_problem_rows"]) if self._result is not None else None

    def show_data(self, spec: RunSpec | None, folder: str, state: str = "") -> None:
        """Takes other data, or the same for another model.

        Args:
            spec: None where its columns are not known yet.
            folder: of the model.
            state: of the files; another one once they have changed.
        """
        if (spec, folder, state) == (self._spec, self._folder, self._state_of_files):
            return
        if spec is None:
            self._give_up()
        self._spec, self._folder, self._state_of_files = spec, folder, state
        self._forget()
        if self._is_shown_now:
            self.ask()

    def set_shown(self, shown: bool) -> None:
        """Starts nothing before somebody looks."""
        self._is_shown_now = shown
        if shown:
            self.ask()

    def ask(self) -> None:
        """Begins the check unless its answer is here or on its way."""
        if self._result is None and not self._waits:
            self._begin()

    def fix(self) -> None:
        """Asks where to save a repaired copy, as soon as it is known what there is to repair."""
        if self._result is not None:
            self._ask_where()
        else:
            self._fixes = True
            self.ask()

    def _forget(self) -> None:
        self._result, self._waits = None, False
        self.outdated.hide()
        self.found.emit([])

    def _give_up(self) -> None:
        if self._waits:
            kept_check().cancel()

    @property
    def is_outdated(self) -> bool:
        """Whether rows were changed after the check that the pane shows."""
        return self._result is not None and self.rows is not None and not self.rows.is_as(kept_check().changed)

    def first_error(self) -> str:
        """What is wrong with the first row that can't be used, and where it is; "" where there is none."""
        found = next((row for rule in self._problems if rule["severity"] == "error" for row in rule["rows"]), None)
        return fill(self.tr("%1: %2"), self._place_words(found), core_text(found["message"])) if found else ""

    def show_outdated(self) -> None:
        """Says whether rows were changed after the check."""
        self.outdated.setVisible(self.is_outdated)

    def check_again(self) -> None:
        """Checks the rows as they are now."""
        if self._spec is not None and self._check(CheckDataSpec(self._spec, self._folder)):
            self._begin()

    def _check(self, spec: CheckDataSpec) -> bool:
        self._waits = True
        try:
            kept_check().begin(spec, self._state_of_files, self.rows)
        except OSError as error:
            self._fail(wrap(error))
            return False
        return True

    def _begin(self) -> None:
        """Begins a check, or takes that of the same data, which may have ended."""
        self._forget()
        if self.isAncestorOf(self.focusWidget()):
            self.cancel.show()
            self._stack.setCurrentIndex(0)
            self.cancel.setFocus()  # what had the keyboard is hidden until the check has ended
        self._put(None)
        self._foot.hide()
        self.summary.hide()
        self._stack.setCurrentIndex(0)
        self.bar.setVisible(self._spec is not None)
        self.cancel.setVisible(self._spec is not None)
        if self._spec is None:
            self.progress_words.setText(self.tr("Say first which column is which."))
            self.unknown.emit()
            return
        self.progress_words.setText(self.tr("Checking the rows…"))
        self.bar.setRange(0, 0)
        check, spec = kept_check(), CheckDataSpec(self._spec, self._folder)
        self._waits = True
        if not check.is_of(spec, self._state_of_files):
            self._check(spec)
        elif check.answer is not None:
            self._take(check.answer)
        elif check.latest is not None:
            self._follow(check.latest)

    def _cancel(self) -> None:
        self._give_up()
        self._waits = self._fixes = False
        again = (self.tr("Check again"), self._begin)
        self._put(EmptyState("search", self.tr("The check was canceled"), primary=again))
        self.unknown.emit()

    def _follow(self, event: Event) -> None:
        if event.type != "progress" or not self._waits:
            return
        data = event.data
        if data.get("total_bytes"):
            self.bar.setRange(0, 1000)
            self.bar.setValue(round(1000 * data["done_bytes"] / data["total_bytes"]))
        words = self.tr("%Ln row(s) checked", "", data.get("rows") or 0)
        if data.get("rows_per_s"):
            words = fill(self.tr("%1, %2 per second"), words, number(data["rows_per_s"]))
        if data.get("remaining_s"):
            words = fill(self.tr("%1, about %2 left"), words, duration(data["remaining_s"]))
        self.progress_words.setText(words)

    def _fail(self, error: TunesmithError) -> None:
        if not self._waits:
            return
        self._waits = self._fixes = False
        if error.code == "environment-missing":
            setup = (self.tr("Set up training"), self.setup_asked.emit)
            words = self.tr("The check uses its libraries.")
            self._put(EmptyState("environment", self.tr("Training is not set up yet"), words, primary=setup))
        else:
            holder = QWidget(self)
            column = QVBoxLayout(holder)
            column.setContentsMargins(0, 0, 0, 0)
            again = (self.tr("Check again"), self._begin)
            column.addWidget(error_banner(error, actions=(again,), dismissable=False, parent=holder))
            column.addStretch(1)
            self._put(holder)
        self.unknown.emit()

    def _put(self, state: QWidget | None) -> None:
        if self._state is not None:
            self._stack.removeWidget(self._state)
            self._state.deleteLater()
        self._state = state
        if state is not None:
            self._stack.addWidget(state)
            self._stack.setCurrentWidget(state)

    # The result

    def _take(self, result: dict[str, Any]) -> None:  # Any: JSON values
        if not self._waits:
            return
        self._waits, self._result = False, result
        problems: list[Problem] = result["problems"]
        rows = self.tr("%Ln row(s) checked", "", result["num_rows"])
        # One for each line of the list below, which tells the rows of each.
        words = listed((rows, self.tr("%Ln problem(s)", "", len(problems)) if problems else ""))
        if result.get("languages"):
            # Of a sample of the rows.
            counts = result["languages"]
            named = ((core_text(language_name(code)), _share(count, counts)) for code, count in counts.items())
            spoken = listed(fill(self.tr("%1 %2"), name, share) for name, share in named)
            words = fill(self.tr("%1  ·  languages: %2"), words, line(spoken))
        self.summary.setText(words)
        self.summary.show()
        self._fill_tree(problems)
        self.show_outdated()
        self.found.emit(problems)
        had_focus = self.isAncestorOf(self.focusWidget())
        again = self.again
        if problems:
            self._foot.show()
            self._stack.setCurrentWidget(self.tree)
        else:
            check = (self.tr("Check again"), self.check_again)
            empty = EmptyState("check-circle", self.tr("No problems found"), primary=check)
            self._put(empty)
            again = empty.primary or again
        if had_focus:
            again.setFocus()
        fixes, self._fixes = self._fixes and bool(problems), False
        if fixes:
            QTimer.singleShot(0, self, self._ask_where)

    def _fill_tree(self, problems: list[Problem]) -> None:
        self.tree.clear()
        self._combos = {}
        for place, problem in enumerate(problems):
            item = tree_item([core_text(problem["title"]), number(problem["count"]), ""])
            item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            item.setIcon(0, icon(*_ICONS.get(problem["severity"], ("info", "muted"))))
            self.tree.addTopLevelItem(item)
            self._add_choice(item, problem)
            item.setData(0, _RULE_ROLE, place)
            item.setChildIndicatorPolicy(QTreeWidgetItem.ChildIndicatorPolicy.ShowIndicator)
        self._size_tree()

    def _fill_rule(self, item: QTreeWidgetItem) -> None:
        """Adds the rows of a rule when they are first asked for: all rules together may have thousands."""
        place = item.data(0, _RULE_ROLE)
        if place is None or item.childCount():
            return
        problem = self._problems[place]
        for number_of_row, row in enumerate(problem["rows"]):
            item.addChild(self._row_item(row, (place, number_of_row)))
        if problem["count"] > len(problem["rows"]):
            more = number(problem["count"] - len(problem["rows"]))
            item.addChild(tree_item([fill(self.tr("and %1 more"), more), "", ""]))
        self.tree.resizeColumnToContents(1)

    def _size_tree(self) -> None:
        """Gives the choices the room that their words need in this size of text."""
        for place, combo in enumerate(self._combos.values()):
            hint = combo.sizeHint().grownBy(QMargins(SPACE, SPACE * 3 // 4, SPACE, SPACE * 3 // 4))
            item = self.tree.topLevelItem(place)
            if item is not None:
                item.setSizeHint(2, hint)
        for column in (1, 2):
            self.tree.resizeColumnToContents(column)

    def _add_choice(self, item: QTreeWidgetItem, problem: Problem) -> None:
        combo = QComboBox(self.tree)
        # To stop is what a run does; a copy has no use for it.
        for action in (each for each in problem["actions"] if each != "stop"):
            add_choice(combo, action_words(action), action)
        chosen = kept_check().actions
        combo.setCurrentIndex(max(combo.findData(chosen.get(problem["rule"], problem["action"])), 0))
        combo.setAccessibleName(fill(self.tr("What is done: %1"), line(core_text(problem["title"]))))
        guard_wheel(combo)
        combo.currentIndexChanged.connect(lambda _index: self._choose_action(problem["rule"]))
        self._combos[problem["rule"]] = combo
        # Not at each choice: the list gives it its place, which it would leave for one of another size.
        combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContentsOnFirstShow)
        self.tree.setItemWidget(item, 2, combo)

    def _choose_action(self, rule: str) -> None:
        kept_check().actions[rule] = self.chosen_actions()[rule]
        self.actions_chosen.emit()

    def _row_item(self, row: Problem, place: tuple[int, int]) -> QTreeWidgetItem:
        words = core_text(row["message"])
        item = tree_item([words, self._place_words(row), ""])
        item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        set_item_tip(item, 0, words)
        item.setData(0, _ROW_ROLE, place)
        return item

    def _place_words(self, row: Problem) -> str:
        """Where a row is: its line or number, of an archive or folder with the file there."""
        where = number_words(self.kind, row["line"]) if row.get("line") else ""
        source = self._spec.data.sources[0].path if self._spec else ""
        inside = row["path"].removeprefix(source).lstrip("/\\") if row["path"].startswith(source) else ""
        return "  ·  ".join(filter(None, (inside, where)))

    def _open(self, item: QTreeWidgetItem, _column: int = 0) -> None:
        place = item.data(0, _ROW_ROLE)
        if place is not None:
            row = self._problems[place[0]]["rows"][place[1]]
            if row.get("line"):
                self.row_asked.emit(row)
        elif item.data(0, _RULE_ROLE) is not None:
            item.setExpanded(not item.isExpanded())

    def chosen_actions(self) -> dict[str, str]:
        """What the person chose for each rule."""
        return {rule: str(combo.currentData()) for rule, combo in self._combos.items()}

    def actions_in_words(self) -> dict[str, str]:
        """The same in words."""
        return {rule: action_words(action) for rule, action in self.chosen_actions().items()}

    def _ask_where(self) -> None:
        assert self._spec is not None
        original = Path(self._spec.data.sources[0].path)
        # Who opened a table wants a table back; other kinds become JSON Lines.
        endings = (CSV, JSON_LINES) if self.kind == "csv" else (JSON_LINES,)
        path = ask_for_copy(self, self.tr("Fix and save as"), original, "-repaired", endings)
        if path is not None:
            self.save_asked.emit(path, self.chosen_actions())


def _share(count: int, counts: dict[str, int]) -> str:
    return f"{round(100 * count / sum(counts.values()))}%"
