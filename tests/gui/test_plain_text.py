"""Hostile text in every field of runs, errors, samples, columns and this computer: the window shows letters only."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QMimeData,
    QModelIndex,
    QObject,
    QPoint,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QAction
from PySide6.QtGui import Qt as GuiQt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QGraphicsTextItem,
    QGraphicsView,
    QLabel,
    QPlainTextEdit,
    QSystemTrayIcon,
    QTextEdit,
    QToolTip,
    QWidget,
)
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.environment.states import DAMAGED, MACHINE, RTX, THERE, fill
from tests.gui.fake_runs import training
from tests.gui.new_run.driving import ANSWER
from tests.hostile_text import HOSTILE, STEERING, make_hostile_run
from tunesmith_core import paths, trash
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run
from tunesmith_gui import plain_text
from tunesmith_gui.context import Context
from tunesmith_gui.dashboard.chart_views import ChartTableDialog
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.dashboard.report import command_line
from tunesmith_gui.dashboard.stop_run import StopRunDialog
from tunesmith_gui.models.run_row import contents_of
from tunesmith_gui.models.run_spec import duplicate_spec
from tunesmith_gui.new_run.data_preview import DataPreviewDialog
from tunesmith_gui.runs.compare import CompareDialog, load_compared
from tunesmith_gui.runs.trash_dialog import TrashDialog
from tunesmith_gui.services.desktop import Desktop
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.widgets.column_mapping import ColumnMappingDialog
from tunesmith_gui.widgets.delete_run import DeleteRunDialog
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel

SHORT = " ".join(text for text in HOSTILE.values() if len(text) < 200)
TEXTS = {name: text for name, text in HOSTILE.items() if len(text) > 200} | {
    "markup": HOSTILE["image"] + SHORT,
    "document": HOSTILE["document"],
}
PANES = ("charts", "log", "samples", "checkpoints", "settings", "files")
ROLES = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)
SMALLEST = QSize(1024, 640)


def walk(root: QWidget) -> list[str]:
    """Say what a widget and everything in it shows as more than letters."""
    faults = []
    for widget in (root, *root.findChildren(QWidget)):
        place = f"{type(widget).__name__} {widget.accessibleName()[:30]!a}"
        faults += [f"{place}: {fault}" for fault in _faults(widget)]
    for action in root.findChildren(QAction):
        if "&" in action.text().replace("&&", "") or GuiQt.mightBeRichText(action.toolTip()):
            faults.append(f"action {action.text()!a}")
    return faults


def _faults(widget: QWidget) -> Iterator[str]:
    if GuiQt.mightBeRichText(widget.toolTip()) or STEERING.search(widget.toolTip()):
        yield f"tool tip {widget.toolTip()!a:.80}"
    if widget.statusTip() or widget.whatsThis():
        yield "status tip"
    if isinstance(widget, QLabel):
        if widget.text() and widget.textFormat() != Qt.TextFormat.PlainText:
            yield f"label {widget.text()!a:.80}"
        if STEERING.search(widget.text()):
            yield f"label with controls {widget.text()!a:.80}"
    if isinstance(widget, QAbstractButton) and "&" in widget.text().replace("&&", ""):
        yield f"shortcut {widget.text()!a:.80}"
    if isinstance(widget, QPlainTextEdit) and STEERING.search(widget.toPlainText()):
        yield "text with controls"
    if isinstance(widget, QTextEdit) and not isinstance(widget, plain_text.ColoredText):
        yield "rich text"
    if isinstance(widget, QAbstractItemView | QComboBox) and widget.model() is not None:
        yield from _items(widget.model(), QModelIndex())
    if isinstance(widget, QGraphicsView) and widget.scene() is not None:
        for item in widget.scene().items():
            html = item.toHtml().lower() if isinstance(item, QGraphicsTextItem) else ""
            if "<img" in html or "<a " in html or "<h1" in html:
                yield f"chart {html[:80]}"


def _items(model: QAbstractItemModel, parent: QModelIndex) -> Iterator[str]:
    for row in range(model.rowCount(parent)):
        for column in range(_num_columns(model, parent)):
            index = model.index(row, column, parent)
            shown, tip = (
                str(index.data(role) or "") for role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)
            )
            if STEERING.search(shown) or "\n" in shown or len(shown) > plain_text.MAX_LETTERS:
                yield f"item {shown!a:.80}"
            if GuiQt.mightBeRichText(tip) or STEERING.search(tip):
                yield f"tool tip of an item {tip!a:.80}"
        yield from _items(model, model.index(row, 0, parent))
    for orientation in (Qt.Orientation.Horizontal, Qt.Orientation.Vertical):
        sections = _num_columns(model, parent) if orientation == Qt.Orientation.Horizontal else 0
        for section in range(sections):
            for role in ROLES:
                text = str(model.headerData(section, orientation, role) or "")
                if (GuiQt.mightBeRichText(text) and role == Qt.ItemDataRole.ToolTipRole) or "\n" in text:
                    yield f"header {text!a:.80}"


def _num_columns(model: QAbstractItemModel, parent: QModelIndex) -> int:
    # Private in lists, which have one.
    return 1 if isinstance(model, QAbstractListModel) else model.columnCount(parent)


@pytest.fixture
def show(window: MainWindow) -> Callable[..., None]:
    """Show a dialog or a widget, or the window itself, and fail when it shows more than letters or grows too wide."""

    def check(widget: QWidget | None = None) -> None:
        shown = widget or window
        shown.show()
        settle()
        shown.grab()
        assert walk(shown) == []
        if widget is None:
            window.resize(SMALLEST)
            settle()
            assert window.size() == SMALLEST
            return
        assert widget.minimumSizeHint().boundedTo(SMALLEST) == widget.minimumSizeHint()
        widget.hide()
        widget.deleteLater()

    return check


def hostile_run(text: str, name: str = "odd-01") -> Run:
    paths.runs_dir().mkdir(exist_ok=True)
    return make_hostile_run(paths.runs_dir() / name, text)


SAMPLE = ("markup", "lines", "endless")
WALKED = [pytest.param(text, id=name, marks=() if name in SAMPLE else pytest.mark.long) for name, text in TEXTS.items()]


@pytest.mark.parametrize("text", WALKED)
class TestWalk:
    def test_the_pages(self, text: str, window: MainWindow, show: Callable[..., None], qtbot: QtBot) -> None:
        run = hostile_run(text)
        window.show_page("runs")
        qtbot.waitUntil(lambda: bool(window.context.library.rows), timeout=10_000)
        show()
        window.show_page("dashboard", run.id)
        page = window.pages.currentWidget()
        assert isinstance(page, DashboardPage)
        qtbot.waitUntil(lambda: page.charts is not None and page.spec is not None, timeout=20_000)
        qtbot.waitUntil(lambda: page._follow is None or page._follow.caught_up, timeout=5000)
        for key in PANES:
            page.panes.show_pane(key)
            settle()
            page._repaint()
            show()
        page.log_pane.source.set_value("output")
        settle()
        show()
        window.show_page("train", duplicate_spec(run.load_spec()))
        show()
        window.toast.show_message("error", text)
        show()

    def test_this_computer(self, text: str, window: MainWindow, show: Callable[..., None]) -> None:
        model = window.context.setup.model
        gpu = dataclasses.replace(RTX, name=text)
        fill(
            model,
            machine=dataclasses.replace(MACHINE, gpus=(gpu,), system_name=text, cpu_name=text),
            installed=dataclasses.replace(THERE, name=text),
            checks=(dataclasses.replace(DAMAGED, message=text, title=text),),
        )
        window.show_page("environment")
        window.context.setup.changed.emit()
        show()

    def test_the_dialogs(self, text: str, context: Context, show: Callable[..., None]) -> None:
        runs = [hostile_run(text), hostile_run(text, "odd-02")]
        show(CompareDialog(load_compared([(text, run) for run in runs])))
        rows = context.library._read()
        show(DeleteRunDialog(rows, contents_of(rows)))
        trash.delete(runs[0], force=True)
        show(TrashDialog())
        show(StopRunDialog(text, 3, 2))
        show(DiagnosticsDialog(text))
        show(ColumnMappingDialog([{text: text, "b": text}], "", "", {}))
        error = TunesmithError("disk-full", "{text}", text=text, hint=text, context=text, link=text)
        show(error_banner(error))

    def test_charts(self, text: str, show: Callable[..., None]) -> None:
        dialog = CompareDialog(load_compared([(text, hostile_run(text)), ("b", hostile_run("b", "b-01"))]))
        dialog.plot.point_at(2.0, dialog.plot._box.mapToScene(5.0, 5.0))
        table = ChartTableDialog(text, dialog.plot.lines, text)
        show(dialog)
        show(table)

    def test_the_preview(
        self, text: str, show: Callable[..., None], fake_engine: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del fake_engine
        monkeypatch.setattr("tunesmith_gui.new_run.data_preview.OperationTask.start", lambda _task: None)
        monkeypatch.setattr("tunesmith_gui.new_run.data_preview.OperationTask.cancel", lambda _task: None)
        dialog = DataPreviewDialog(hostile_run(text).load_spec())
        segments = [{"text": text, "trained": trained} for trained in (True, False)]
        answer: dict[str, Any] = {**ANSWER, "notes": [text], "problems": [{"line": 4, "message": text}]}
        dialog._succeed({**answer, "rows": [{**ANSWER["rows"][0], "segments": segments}]})
        dialog._waiting = False
        assert "<img src" not in dialog.text.toHtml()
        show(dialog)

    def test_lists_that_open(self, text: str, show: Callable[..., None]) -> None:
        combo = PathCombo("Model", "A folder", "runs")
        combo.set_choices([PathChoice(text, f"/{text}"), PathChoice(text, f"/other/{text}")])
        combo.show_path(f"/{text}")
        show(combo)

    def test_running_and_found(self, text: str, window: MainWindow, show: Callable[..., None]) -> None:
        window.activity.show_runs([training(text)])
        show(window.activity)


def shown_tip() -> QLabel:
    """The label that Qt shows a tool tip with."""
    (label,) = (
        each
        for each in QApplication.topLevelWidgets()
        if each.metaObject().className() == "QTipLabel" and not each.isHidden()
    )
    assert isinstance(label, QLabel)
    return label


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_tool_tip_is_letters_and_fits_a_screen(text: str, qtbot: QtBot) -> None:
    label = ElidedLabel(text)
    qtbot.addWidget(label)
    label.resize(20, 20)
    label.grab()
    assert label.toolTip()
    QToolTip.showText(QPoint(0, 0), label.toolTip(), label)
    # Qt breaks lines in a tool tip only where it takes it for HTML.
    assert not shown_tip().wordWrap()
    assert shown_tip().width() < 2000
    QToolTip.hideText()
    settle()


@pytest.mark.parametrize(
    "text", ["<b>x</b>", "&lt;b", "<!doctype html>", "<?xml version='1.0'?><b>", "\n<img src=x>", "a<br/>"]
)
def test_a_tool_tip_says_what_it_was_given(text: str) -> None:
    assert GuiQt.mightBeRichText(text)
    made = plain_text.tip(text)
    assert not GuiQt.mightBeRichText(made)
    assert made.replace("\u2060", "") == text


def test_long_lines_of_a_tool_tip_are_folded_at_spaces() -> None:
    words = "word " * 60
    assert [len(line) <= 100 for line in plain_text.tip(words).split("\n")] == [True] * 3
    assert plain_text.tip(words).replace("\n", " ").split() == words.split()
    assert {len(line) for line in plain_text.tip("训" * 100).split("\n")} == {50}
    assert plain_text.tip("short") == "short"


def test_a_notification_has_no_markup(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", lambda: True)
    monkeypatch.setattr(QSystemTrayIcon, "supportsMessages", lambda: True)
    monkeypatch.setattr(QSystemTrayIcon, "show", lambda _self: None)
    monkeypatch.setattr(QSystemTrayIcon, "showMessage", lambda _self, *words: told.append(words))
    window = QWidget()
    qtbot.addWidget(window)
    Desktop().notify("Finished", "<a href='x'>R&D</a>\x1b", window)
    assert told == [("Finished", "‹a href='x'›R＆D‹/a›\\x1b")]


def test_titles_and_buttons_say_what_they_were_given() -> None:
    assert plain_text.window_title("run [*]\n") == "run [*][*]\\n"
    assert plain_text.without_shortcut("R&D") == "R&&D"


def test_the_box_before_the_window_shows_letters(qtbot: QtBot) -> None:
    box = plain_text.message_box("<b>x</b>", '<img src="x"> ' + "y" * 5000)
    qtbot.addWidget(box)
    shown = [label for label in box.findChildren(QLabel) if label.text()]
    assert len(shown) == 2
    assert {label.textFormat() for label in shown} == {Qt.TextFormat.PlainText}
    assert walk(box) == []


def test_a_label_without_lines_to_break_stays_narrow(qtbot: QtBot) -> None:
    label = SafeLabel("x" * 70_000)
    qtbot.addWidget(label)
    assert label.text().endswith("…")
    assert label.sizeHint().width() < 2000
    wrapped = SafeLabel("x" * 70_000, wrap=True)
    qtbot.addWidget(wrapped)
    assert wrapped.minimumSizeHint().width() < 2000
    path = "/".join(["folder"] * 60)
    assert SafeLabel(path, wrap=True, selectable=True).text() == path


@pytest.mark.skipif(sys.platform == "win32", reason="is about a shell of Linux")
@pytest.mark.parametrize("name", ["plain", "it's a \\ b", "a\x1b[201~;touch x\nb'\\\t", "名字 \u202e"])
def test_a_copied_command_is_letters_and_names_the_same_file(name: str) -> None:
    command = command_line(Path("/runs") / name)
    assert not STEERING.search(command)
    assert "\n" not in command
    assert command.startswith("tunesmith train ")
    shell = ["bash", "-c", "printf %s " + command.removeprefix("tunesmith train ")]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    found = subprocess.run(shell, capture_output=True, check=True, env=environment).stdout.decode()
    assert found == f"/runs/{name}/spec.json"


def test_an_opened_list_is_as_wide_as_its_longest_choice(qtbot: QtBot) -> None:
    combo = QComboBox()
    qtbot.addWidget(combo)
    combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    for text in ("No", "Keep the model's answers to questions of every kind"):
        plain_text.add_choice(combo, text, text)
    combo.resize(90, combo.sizeHint().height())
    combo.show()
    combo.showPopup()
    settle()
    opened = combo.view()
    room = opened.viewport().width()
    assert combo.width() < 100 < opened.sizeHintForColumn(0) <= room
    plain_text.add_choice(combo, "long " * 200, "")
    assert opened.minimumWidth() < 600
    combo.hidePopup()


@pytest.mark.parametrize("sign", ["\ufffd", "=", "\N{BOX DRAWINGS LIGHT HORIZONTAL}", "7", "☃", "?!"])
def test_a_long_run_of_signs_is_broken(sign: str, qtbot: QtBot) -> None:
    text = sign * (60 // len(sign))
    broken = plain_text.paragraphs(text)
    assert broken.replace("\u200b", "") == text
    assert max(map(len, broken.split("\u200b"))) == 8
    label = SafeLabel(text, wrap=True)
    qtbot.addWidget(label)
    assert label.minimumSizeHint().width() < 200
    assert plain_text.paragraphs(sign * 4) == sign * 4
    digest = "0123456789abcdef" * 4
    assert plain_text.paragraphs(digest) == digest, "what is copied stays as it is"


def test_a_path_of_windows_is_broken_as_one_of_linux_is(qtbot: QtBot) -> None:
    words = "the very long name of a folder"
    widths = []
    for path in (f"/{words}/a.jsonl".replace(" ", "_"), f"C:\\{words}\\a.jsonl".replace(" ", "_")):
        label = SafeLabel(path * 2, wrap=True)
        qtbot.addWidget(label)
        widths.append(label.minimumSizeHint().width())
    assert widths[1] < 1.5 * widths[0]
    assert plain_text.paragraphs("\\\\server\\a, \\ and x\\") == "\\\\server\\\u200ba, \\ and x\\"


class Clipboard(QObject):
    """Stands in for the desktop's, which the platform of the tests does not own."""

    dataChanged = Signal()

    def __init__(self, mine: bool, html: bool) -> None:
        super().__init__()
        self.mine, self.held = mine, QMimeData()
        if html:
            self.held.setHtml("<p>a</p>")

    def ownsClipboard(self) -> bool:
        return self.mine

    def mimeData(self) -> QMimeData:
        return self.held

    def text(self) -> str:
        return self.held.text()

    def setText(self, text: str) -> None:
        self.held = QMimeData()
        self.held.setText(text)
        self.dataChanged.emit()


@pytest.mark.parametrize(
    ("mine", "html", "left"), [(True, True, "C:\\a"), (False, True, "C:\\\u200ba"), (True, False, "C:\\\u200ba")]
)
def test_what_is_copied_from_a_label_can_be_pasted_as_a_path(mine: bool, html: bool, left: str) -> None:
    clipboard = Clipboard(mine, html)
    plain_text.keep_breaks_out_of(clipboard)  # type: ignore[arg-type]
    clipboard.held.setText("C:\\\u200ba")
    clipboard.dataChanged.emit()
    assert clipboard.text() == left


def test_a_color_of_an_emoji_stays_with_it() -> None:
    hand = "\N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"
    pieces = plain_text.paragraphs("!" + hand * 30).split("\u200b")
    assert len(pieces) > 1
    assert not any(piece.startswith(hand[1]) for piece in pieces)


def test_a_long_word_is_broken_between_letters_with_their_marks() -> None:
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    for letter in ("e\N{COMBINING ACUTE ACCENT}", "\N{THAI CHARACTER KO KAI}\N{THAI CHARACTER SARA I}", family):
        pieces = plain_text.paragraphs(letter * 60, longest_word=24).split("\u200b")
        assert len(pieces) > 1
        assert "".join(pieces) == letter * 60
        assert all(piece == letter * (len(piece) // len(letter)) for piece in pieces)
