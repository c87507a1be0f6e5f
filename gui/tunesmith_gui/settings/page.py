"""Settings: what holds for all runs and for the window. Every change takes effect and is saved at once."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSignalBlocker, Qt, QTimer
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core import __version__, files, paths
from tunesmith_core.errors import UserError
from tunesmith_core.settings import Settings, iter_settings
from tunesmith_gui import tr
from tunesmith_gui.context import Context
from tunesmith_gui.page import Page, page_column
from tunesmith_gui.plain_text import add_choice, without_shortcut
from tunesmith_gui.settings.token_field import TokenField
from tunesmith_gui.shortcuts import actions
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.page_header import PageHeader
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel

FONT_SCALES = (80, 90, 100, 110, 125, 150, 175, 200)
_COLUMN_PX = SPACE * 96


class SettingsPage(Page):
    """General, Runs, Network, Storage, Shortcuts, About."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self._declared = {name: declaration for name, _type, _default, declaration in iter_settings()}
        self._combos: dict[str, QComboBox] = {}
        self._boxes: dict[str, QCheckBox] = {}
        self._texts: dict[str, QLineEdit] = {}
        column = page_column(self, max_width_px=_COLUMN_PX)
        header = PageHeader(self.tr("Settings"), parent=self)
        header.add_action(
            button(self.tr("Reset all settings"), self._reset, kind="quiet", icon_name="reset", parent=self)
        )
        column.addWidget(header)
        column.addWidget(self._build_general())
        column.addWidget(self._build_runs())
        column.addWidget(self._build_network())
        column.addWidget(self._build_storage())
        column.addWidget(self._build_shortcuts())
        column.addWidget(self._build_about())
        column.addStretch(1)
        context.preferences.changed.connect(self._show_values)
        self._show_values()

    def on_shown(self, argument: object = None) -> None:
        """Puts the focus on a setting when one is named."""
        controls: dict[str, QWidget] = {**self._combos, **self._boxes, **self._texts}
        if isinstance(argument, str) and argument in controls:
            controls[argument].setFocus(Qt.FocusReason.OtherFocusReason)
            (scroll,) = self.findChildren(QScrollArea)
            # The page has its places once it is laid out.
            QTimer.singleShot(0, scroll, lambda: scroll.ensureWidgetVisible(controls[argument]))
        self.token.look()

    def _build_general(self) -> Card:
        card = Card(self.tr("General"), parent=self)
        system = tr.fill(self.tr("Same as the system (%1)"), tr.LANGUAGES[tr.resolve_language("system")])
        languages = [(value, name or system) for value, name in tr.LANGUAGES.items()]
        schemes = [
            ("system", self.tr("Same as the system")),
            ("light", self.tr("Light")),
            ("dark", self.tr("Dark")),
            ("high_contrast", self.tr("High contrast")),
        ]
        scales = [(scale, f"{scale}%") for scale in FONT_SCALES]
        for name, options in (("language", languages), ("theme", schemes), ("font_scale_percent", scales)):
            card.body.addWidget(self._choice(name, options))
        return card

    def _build_runs(self) -> Card:
        card = Card(self.tr("Runs"), parent=self)
        self._meanings: list[SafeLabel] = []
        for name in ("keep_awake", "notify_run_end", "confirm_close"):
            card.body.addLayout(self._switch(name, card))
        theme().changed.connect(self._indent)
        return card

    def _switch(self, name: str, card: Card) -> QVBoxLayout:
        box = QCheckBox(without_shortcut(core_text(self._declared[name].label)), card)
        box.setAccessibleDescription(core_text(self._declared[name].meaning))
        box.toggled.connect(lambda checked: self.context.preferences.change(**{name: checked}))
        self._boxes[name] = box
        meaning = core_text(self._declared[name].meaning)
        words = SafeLabel(meaning, role="caption", tone="muted", wrap=True, parent=card)
        self._meanings.append(words)
        pair = QVBoxLayout()
        pair.setSpacing(0)
        pair.setContentsMargins(-SPACE // 2, 0, 0, 0)  # the mark stands under the heading
        pair.addWidget(box)
        pair.addWidget(words)
        return pair

    def _indent(self) -> None:
        """Puts what a box means below its words: the mark grows with the text, the room around it doesn't."""
        for words in self._meanings:
            words.setIndent(round(SPACE * 2 * (theme().font_scale + 1)))

    def _build_network(self) -> Card:
        card = Card(self.tr("Network"), parent=self)
        wrong_address = self.tr("Enter an address such as https://mirror.example/simple or http://proxy.example:8080.")
        wrong_folder = self.tr("Enter the full path of a folder.")
        for name in ("package_index", "pytorch_index", "proxy", "wheel_folder"):
            card.body.addWidget(self._text(name, wrong_folder if name == "wheel_folder" else wrong_address))
        card.body.addWidget(self._choice("hub", [("huggingface", "Hugging Face"), ("modelscope", "ModelScope")]))
        card.body.addWidget(self._text("hub_endpoint", wrong_address))
        card.body.addLayout(self._switch("offline", card))
        self.token = TokenField(self)
        self.token.failed.connect(self._show_error)
        card.body.addWidget(self.token)
        self._indent()
        return card

    def _build_storage(self) -> Card:
        card = Card(self.tr("Storage"), parent=self)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        words = SafeLabel(self.tr("Runs, models and environments"), parent=card)
        folder = ElidedLabel(str(paths.data_root()), tone="muted", mode=Qt.TextElideMode.ElideMiddle, parent=card)
        row.addWidget(words)
        row.addWidget(folder, 1)
        row.addWidget(button(self.tr("Open folder"), self._open_folder, icon_name="folder", parent=card))
        card.body.addLayout(row)
        how = self.tr(
            "To use another folder, close Tunesmith, move this one, and start with the variable %1 set to it."
        )
        note = SafeLabel(fill(how, paths.HOME_VARIABLE), role="caption", tone="muted", wrap=True, parent=card)
        card.body.addWidget(note)
        return card

    def _build_shortcuts(self) -> Card:
        card = Card(self.tr("Keyboard"), parent=self)
        grid = QGridLayout()
        grid.setHorizontalSpacing(SPACE * 4)
        grid.setVerticalSpacing(SPACE)
        for place, action in enumerate(actions()):
            row, column = divmod(place, 2)
            grid.addWidget(SafeLabel(action.words, wrap=True, parent=card), row, column * 2)
            keys = SafeLabel(action.shown_keys, tone="muted", parent=card)
            grid.addWidget(keys, row, column * 2 + 1, Qt.AlignmentFlag.AlignRight)
        grid.setColumnStretch(0, 1)
        grid.setColumnStretch(2, 1)
        card.body.addLayout(grid)
        return card

    def _build_about(self) -> Card:
        card = Card(self.tr("About"), parent=self)
        card.body.addWidget(SafeLabel(tr.fill(self.tr("Tunesmith %1"), __version__), selectable=True, parent=card))
        words = self.tr("Free software under the Apache License 2.0. No account, no telemetry, no open ports.")
        card.body.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=card))
        return card

    def _choice(self, name: str, options: Sequence[tuple[object, str]]) -> Field:
        combo = QComboBox(self)
        for value, words in options:
            add_choice(combo, words, value)
        combo.setMinimumContentsLength(24)
        combo.activated.connect(lambda _index: self.context.preferences.change(**{name: combo.currentData()}))
        self._combos[name] = combo
        declared = self._declared[name]
        return Field(core_text(declared.label), combo, help_text=core_text(declared.meaning), inline=True, parent=self)

    def _text(self, name: str, wrong: str) -> Field:
        edit = self._texts[name] = QLineEdit(self)
        declared = self._declared[name]
        field = Field(core_text(declared.label), edit, help_text=core_text(declared.meaning), parent=self)

        def take() -> None:
            try:
                self.context.preferences.change(**{name: edit.text().strip()})
            except UserError:
                field.set_error(wrong)
            else:
                field.set_error("")

        edit.editingFinished.connect(take)
        return field

    def _show_values(self) -> None:
        values = self.context.preferences.values
        for name, combo in self._combos.items():
            with QSignalBlocker(combo):
                combo.setCurrentIndex(combo.findData(getattr(values, name)))
        for name, box in self._boxes.items():
            with QSignalBlocker(box):
                box.setChecked(getattr(values, name))
        for name, edit in self._texts.items():
            if not edit.property("invalid"):
                edit.setText(getattr(values, name))

    def _reset(self) -> None:
        default = Settings()
        names = (*self._combos, *self._boxes)
        self.context.preferences.change(**{name: getattr(default, name) for name in names})
        for name, edit in self._texts.items():
            edit.setText(getattr(default, name))
            edit.editingFinished.emit()
        self.notify.emit("ok", self.tr("All settings were reset to their defaults."))

    def _open_folder(self) -> None:
        files.private_folder(paths.data_root())
        self.open_folder(paths.data_root())
