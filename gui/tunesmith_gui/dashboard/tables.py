"""The tabs of a run's page that are tables: checkpoints, the settings that were used, files."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QHeaderView, QTreeWidget, QTreeWidgetItem, QVBoxLayout, QWidget

from tunesmith_core import rewards
from tunesmith_core.objectives import REINFORCEMENT
from tunesmith_core.spec import RunSpec, iter_settings
from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import Checkpoint, DashboardModel
from tunesmith_gui.models.run_row import when
from tunesmith_gui.models.run_spec import value_text
from tunesmith_gui.plain_text import set_item_tip, tree_item
from tunesmith_gui.theme import font, theme
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.safe_label import SafeLabel

_MAX_FILES = 500
_LEAST_ROWS = 8


class _Table(QTreeWidget):
    def __init__(self, name: str, headers: tuple[str, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setHeaderLabels(list(headers))
        self.setRootIsDecorated(False)
        self.setUniformRowHeights(True)
        self.setFrameShape(QTreeWidget.Shape.NoFrame)
        self.header().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.header().setStretchLastSection(True)
        theme().changed.connect(self._scale)
        self._scale()
        self.header().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)

    def _scale(self) -> None:
        self.setMinimumHeight(font().pointSize() * _LEAST_ROWS * 3)


class CheckpointsTable(_Table):
    """The checkpoints of a run, newest first."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr.translate("Dashboard", "Checkpoints"), (), parent)
        self.setHeaderLabels([self.tr("Step"), self.tr("When"), self.tr("Size"), self.tr("Took"), self.tr("Folder")])
        self._shown: list[Checkpoint] = []

    def set_checkpoints(self, checkpoints: list[Checkpoint]) -> None:
        """Show checkpoints; nothing happens when they are the same."""
        if checkpoints == self._shown:
            return
        self._shown = list(checkpoints)
        self.clear()
        for each in reversed(self._shown):
            texts = [tr.number(each.step), when(each.t), tr.size(each.num_bytes), tr.duration(each.seconds), each.path]
            self.addTopLevelItem(tree_item(texts))


class SettingsUsedTable(_Table):
    """The frozen spec of a run; what differs from the default is marked by weight and word."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr.translate("Dashboard", "Settings used"), (), parent)
        self.setHeaderLabels([self.tr("Setting"), self.tr("Value"), self.tr("Default")])
        self.setRootIsDecorated(True)
        self.header().setStretchLastSection(False)
        self.header().setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        self._shown: tuple[RunSpec, dict[str, str]] | None = None

    def forget(self) -> None:
        """Show no settings."""
        self._shown = None
        self.clear()

    def set_spec(self, spec: RunSpec, used: dict[str, str]) -> None:
        """Show a spec; `used` says by path what automatic settings came to. Equal ones change nothing."""
        if self._shown == (spec, used):
            return
        self._shown = spec, used
        self.clear()
        groups: dict[str, QTreeWidgetItem] = {}
        bold = QFont(self.font())
        bold.setWeight(QFont.Weight.DemiBold)
        is_rewarded = spec.objective.kind in REINFORCEMENT
        for setting in iter_settings():
            # Rewards are told below, in one line.
            if setting.section == "rollouts" and (not is_rewarded or setting.path.startswith("rollouts.rewards[")):
                continue
            group = groups.get(setting.section)
            if group is None:
                group = groups[setting.section] = tree_item([core_text(setting.section.capitalize())])
                group.setFont(0, bold)
                self.addTopLevelItem(group)
                group.setExpanded(True)
            value, default, unit = setting.get(spec), setting.default, setting.declaration.unit
            same = value == default
            words = value_text(value)
            shown = f"{words} {core_text(unit)}".strip() if words else ""
            if value in ("auto", ["auto"]) and used.get(setting.path):
                shown = f"{shown} ({value_text(used[setting.path])})"
            unset = core_text(setting.declaration.unset)
            shown = unset if value is None and unset else shown
            note = "" if same else self._note(value_text(default) or unset)
            item = tree_item([core_text(setting.declaration.label), shown or "–", note])
            set_item_tip(item, 1, shown)
            if not same:
                item.setFont(1, bold)
            group.addChild(item)
        if is_rewarded:
            rewarded = core_text(rewards.described(spec.rollouts.rewards))
            item = tree_item([self.tr("Rewards"), rewarded, ""])
            set_item_tip(item, 1, rewarded)
            groups["rollouts"].addChild(item)

    def _note(self, default: str) -> str:
        return tr.fill(self.tr("changed, default is %1"), default) if default else self.tr("changed")


class SettingsPane(QWidget):
    """The settings that were used, or why they can't be read."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        self.words = SafeLabel(tone="muted", wrap=True, selectable=True, parent=self)
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.table = SettingsUsedTable(self)
        column.addWidget(self.words)
        column.addWidget(self.table, 1)
        self.clear()

    def clear(self) -> None:
        """Show nothing: another run is opened, whose settings are not read yet."""
        self.table.forget()
        self.words.hide()
        self.table.show()

    def show_settings(self, spec: RunSpec | None, model: DashboardModel) -> None:
        """Show the settings of a run, or why there are none."""
        unreadable = spec is None and model.unreadable is not None
        self.words.setVisible(unreadable)
        self.table.setVisible(not unreadable)
        if spec is not None:
            self.table.set_spec(spec, model.used)
        elif model.unreadable is not None:
            words = self.tr("The settings of this run can’t be read. %1")
            self.words.setText(fill(words, core_text(model.unreadable.message)))


class FilesTable(_Table):
    """The files of a run folder with their sizes."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr.translate("Dashboard", "Files"), (), parent)
        self.setHeaderLabels([self.tr("File"), self.tr("Size"), self.tr("Changed")])
        self._shown: list[tuple[str, int, float]] = []

    def set_files(self, files: list[tuple[str, int, float]]) -> None:
        """Show files as of `list_files`; what is in view and selected stays."""
        if files == self._shown:
            return
        place, current = self.verticalScrollBar().value(), self.currentIndex().row()
        chosen = self._shown[current][0] if current >= 0 else ""
        self._shown = files
        self.clear()
        for path, size, t in files:
            item = tree_item([path, tr.size(size), when(t)])
            self.addTopLevelItem(item)
            if path == chosen:
                self.setCurrentItem(item)
        self.verticalScrollBar().setValue(place)


def list_files(folder: Path) -> list[tuple[str, int, float]]:
    """Relative path, bytes and time of change (seconds since 1970) of the files below a folder, at most 500."""
    found = []
    for base, _folders, names in os.walk(folder):
        for name in names:
            path = Path(base) / name
            try:
                stat = path.stat()
            except OSError:
                # Files come and go while the run is live.
                continue
            found.append((path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime))
            if len(found) >= _MAX_FILES:
                return sorted(found)
    return sorted(found)
