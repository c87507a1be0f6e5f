"""A lint: foreign text reaches window and terminal through the one home that each has, which makes it plain.

`gui/tunesmith_gui/plain_text.py` and `SafeLabel` for the window, `tunesmith_core/terminal.py` for the terminal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.packaging.test_house_rules import REPOSITORY, project_files

HOMES = tuple(f"gui/tunesmith_gui/{name}.py" for name in ("plain_text", "widgets/safe_label", "report_pdf"))
"""The last prints the report, whose page escapes every foreign text (tunesmith_core.report.page)."""
TERMINAL = "engine/tunesmith_core/terminal.py"
OURS = ("engine/tunesmith_core", "engine/tunesmith_engine", "gui/tunesmith_gui", "installers/tunesmith_setup")

RICH_WIDGETS = {
    "QLabel", "QMessageBox", "QErrorMessage", "QInputDialog", "QProgressDialog", "QToolTip", "QWhatsThis", "QTextEdit",
    "QTextBrowser", "QTextDocument", "QGraphicsTextItem", "QStaticText", "QCommandLinkButton",
}  # fmt: skip
"""Show HTML when a text looks like it, or when they are asked to."""

RICH_CALLS = {
    "setToolTip", "setStatusTip", "setWhatsThis", "setTextFormat", "setHtml", "insertHtml", "appendHtml", "setMarkdown",
    "setInformativeText", "setDetailedText", "setItemData", "addItems", "insertItem", "insertItems", "setItemText",
}  # fmt: skip

ITEMS = {"QTreeWidgetItem", "QListWidgetItem", "QTableWidgetItem", "QStandardItem"}
"""Made by `tree_item` and its kin, which bound their text to one line."""

WITH_SHORTCUTS = {"QAction", "QPushButton", "QCheckBox", "QRadioButton", "QGroupBox", "addAction", "addMenu", "addTab"}
"""Read `&` in their first argument as a shortcut: our own words, or `without_shortcut`."""

WRAPPED = {"setWindowTitle": "window_title", "showMessage": "notification", "setLabel": "for_html"}
"""Take our own words, or what the named function returns."""

OWN_WORDS = {"tr", "translate"}
PICTURES = {"_plot", "layout"}
"""Receivers of pyqtgraph's and Qt's own `addItem`, which takes no text."""


def violations(source: str, path: str) -> Iterator[str]:
    """Yield what a file does that only a home may do."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if path != TERMINAL and (found := _writes(node)):
            yield f"{path}:{node.lineno} {found}: write it by tunesmith_core.terminal"  # type: ignore[attr-defined]
        if path.startswith("gui/") and path not in HOMES and (found := _raw(node)):
            yield f"{path}:{node.lineno} {found}"  # type: ignore[attr-defined]
    if path.startswith("gui/") and path not in HOMES:
        yield from (f"{path}:{line} ToolTipRole: return tip(...) for it" for line in _tip_roles(tree))


def _writes(node: ast.AST) -> str:
    """Name a write to standard output or standard error."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        return "print"
    if isinstance(node, ast.Attribute) and node.attr in ("write", "writelines", "buffer"):
        stream = node.value
        if isinstance(stream, ast.Attribute) and stream.attr.strip("_") in ("stdout", "stderr"):
            return ast.unparse(node) if ast.unparse(stream).startswith("sys.") else ""
    return ""


def _raw(node: ast.AST) -> str:
    """Name what could show foreign text as more than text."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        return f"{name}: use SafeLabel or plain_text" if name in RICH_WIDGETS else ""
    if isinstance(node, ast.Constant) and node.value == "&&":
        return "&&: use plain_text.without_shortcut"
    if not isinstance(node, ast.Call):
        return ""
    name = _name(node.func)
    if any(keyword.arg == "html" for keyword in node.keywords):
        return "html=: use plain_text.for_html"
    if name in RICH_CALLS | ITEMS:
        return f"{name}: use its counterpart in plain_text"
    if name == "addItem" and not _takes_no_text(node):
        return "addItem: use plain_text.add_choice or list_item"
    if name in WITH_SHORTCUTS and node.args and not _is_made_by(node.args[0], {"without_shortcut"}):
        return f"{name}: its text needs plain_text.without_shortcut"
    if name in WRAPPED and not all(_is_made_by(argument, {WRAPPED[name]}) for argument in node.args):
        return f"{name}: its text needs plain_text.{WRAPPED[name]}"
    return ""


def _takes_no_text(call: ast.Call) -> bool:
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if _name(receiver) == "_legend":
        return len(call.args) == 2 and _is_made_by(call.args[1], {"for_html"})
    return _name(receiver) in PICTURES or (len(call.args) == 1 and ast.unparse(call.args[0]) == "item")


def _is_made_by(argument: ast.expr, makers: set[str]) -> bool:
    """Return whether an argument is no text, our own words, or what one of some functions returned."""
    if isinstance(argument, ast.Call):
        return _name(argument.func) in OWN_WORDS | makers
    # A parent or an action that was made before; any other name may hold foreign text.
    return isinstance(argument, ast.Name) and argument.id in ("self", "parent", "entry", "menu", "holder")


def _name(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _tip_roles(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that ask for the role of tool tips without returning `tip(...)`."""
    answered: set[ast.AST] = set()
    for node in ast.walk(tree):
        returned = [each for each in ast.walk(node) if isinstance(each, ast.Return)] if isinstance(node, ast.If) else []
        if returned and all(isinstance(each.value, ast.Call) and _name(each.value.func) == "tip" for each in returned):
            answered.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "ToolTipRole" and node not in answered:
            yield node.lineno


def test_foreign_text_goes_through_its_home() -> None:
    found = []
    for path in project_files(".py"):
        name = path.relative_to(REPOSITORY).as_posix()
        if name.startswith(OURS):
            found += violations(path.read_text(encoding="utf-8"), name)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        "sys.stdout.write(name)",
        "sys.stderr.buffer.write(name)",
        "print(name)",
        "QLabel(name)",
        "from PySide6.QtWidgets import QLabel\nclass Name(QLabel): pass",
        "QtWidgets.QMessageBox.information(self, name, name)",
        "QTextBrowser(self)",
        "QToolTip.showText(place, name)",
        "row.setToolTip(name)",
        "item.setToolTip(1, name)",
        "combo.setItemData(0, name, Qt.ItemDataRole.ToolTipRole)",
        "combo.addItem(name)",
        "combo.addItem(name, value)",
        "combo.addItems(names)",
        "self._legend.addItem(item, name)",
        "label.setTextFormat(Qt.TextFormat.RichText)",
        "item.setHtml(name)",
        "pg.TextItem(html=name)",
        "axis.setLabel(name)",
        "QAction(name, menu)",
        "menu.addAction(name)",
        "QCheckBox(f'{name}', self)",
        "bar.addTab(name)",
        "name.replace('&', '&&')",
        "self.setWindowTitle(name)",
        "tray.showMessage(title, name)",
        "QListWidgetItem(name)",
        "def data(self, index, role):\n if role == Qt.ItemDataRole.ToolTipRole:\n  return self.name",
        "def data(self, index, role):\n return {Qt.ItemDataRole.ToolTipRole: name}[role]",
    ],
)
def test_a_planted_violation_is_found(planted: str) -> None:
    assert list(violations(planted, "gui/tunesmith_gui/planted.py"))


@pytest.mark.parametrize(
    "fine",
    [
        "set_tip(row, name)",
        "SafeLabel(name, parent=self)",
        "self._plot.addItem(item, ignoreBounds=True)",
        "self._legend.addItem(item, for_html(name))",
        "QAction(without_shortcut(name), menu)",
        "menu.addAction(self.tr('Save'), run)",
        "menu.addAction(entry)",
        "QCheckBox(self)",
        "self.setWindowTitle(self.tr('Trash'))",
        "self.setWindowTitle(window_title(name))",
        "def data(self, index, role):\n if role == Qt.ItemDataRole.ToolTipRole:\n  return tip(self.name)",
        "terminal.say(name)",
        "file.write(name)",
        "sys.stdout.isatty()",
    ],
)
def test_what_the_homes_offer_is_fine(fine: str) -> None:
    assert not list(violations(fine, "gui/tunesmith_gui/planted.py"))
