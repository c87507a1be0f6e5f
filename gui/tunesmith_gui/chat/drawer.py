"""The drawer at the side: system prompt and sampling of a conversation."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDoubleSpinBox, QPlainTextEdit, QScrollArea, QSpinBox, QVBoxLayout, QWidget

from tunesmith_core.conversations import Conversation
from tunesmith_core.sampling import Sampling
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import SafeLabel

_LETTERS = 30
_SYSTEM_LINES = 5


class SettingsDrawer(QScrollArea):
    """Fields of the conversation that is shown.

    Signals:
        changed: the person changed a field.
    """

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        holder = Card(self.tr("Answer settings"), parent=self)
        self.setWidget(holder)
        self._quiet = False
        self.system = QPlainTextEdit(holder)
        self.system.setTabChangesFocus(True)
        self.system.textChanged.connect(self._tell)
        self.template = SafeLabel(tone="muted", wrap=True, parent=holder)
        self.template.hide()
        holder.body.addWidget(self.template)
        fields = QVBoxLayout()
        fields.setSpacing(SPACE * 2)
        fields.addWidget(
            Field(
                self.tr("System prompt"),
                self.system,
                help_text=self.tr(
                    "Said to the model before every conversation. When empty, its chat template may say something of "
                    "its own."
                ),
                parent=holder,
            )
        )
        self._boxes: dict[str, QSpinBox | QDoubleSpinBox] = {}
        for name, label, unit, help_text in self._texts():
            box = self._boxes[name] = _box(name, holder)
            box.lineEdit().setTextMargins(SPACE - 2, 0, 0, 0)
            box.valueChanged.connect(lambda _value: self._tell())
            fields.addWidget(Field(label, box, unit=unit, help_text=help_text, parent=holder))
        holder.body.addLayout(fields)
        self.reset = button(self.tr("Reset sampling"), self._reset, kind="link", parent=holder)
        holder.body.addWidget(self.reset, 0, Qt.AlignmentFlag.AlignLeft)
        holder.body.addStretch(1)
        theme().changed.connect(self._scale, Qt.ConnectionType.QueuedConnection)
        self._scale()

    def _scale(self) -> None:
        """Follows the size of text."""
        metrics = self.fontMetrics()
        self.setFixedWidth(_LETTERS * metrics.averageCharWidth() + SPACE * 8)
        self.system.setFixedHeight(_SYSTEM_LINES * metrics.lineSpacing() + SPACE * 3)

    def _texts(self) -> tuple[tuple[str, str, str, str], ...]:
        return (
            (
                "temperature",
                self.tr("Temperature"),
                "",
                self.tr("0 always takes the most likely token. 0.7 varies. Above 1, answers get wild."),
            ),
            ("max_tokens", self.tr("Longest answer"), self.tr("tokens"), ""),
            (
                "top_p",
                self.tr("Top p"),
                "",
                self.tr("Only the likeliest tokens that together have this probability. 1 for all."),
            ),
            ("top_k", self.tr("Top k"), self.tr("tokens"), self.tr("Only so many of the likeliest tokens. 0 for all.")),
            (
                "min_p",
                self.tr("Min p"),
                "",
                self.tr("Only tokens with this share of the likeliest one’s probability. 0 for all."),
            ),
            (
                "repetition_penalty",
                self.tr("Repetition penalty"),
                "",
                self.tr("Above 1, tokens that occurred get less likely. 1 for none."),
            ),
            ("seed", self.tr("Seed"), "", self.tr("The same seed gives the same answer.")),
        )

    def show_template(self, is_used: bool | None) -> None:
        """Say whether a chat template makes the prompts; None while nobody knows."""
        used = self.tr("Questions reach the model through its chat template.")
        missing = self.tr(
            "This model has no chat template. It continues your text as it stands, without the system prompt."
        )
        self.template.setText("" if is_used is None else used if is_used else missing)
        self.template.set_tone("warn" if is_used is False else "muted")
        self.template.setVisible(is_used is not None)

    def show_conversation(self, talk: Conversation) -> None:
        """Show the settings of a conversation."""
        self._quiet = True
        if self.system.toPlainText() != talk.system:
            self.system.setPlainText(talk.system)
        for name, box in self._boxes.items():
            box.setValue(getattr(talk.sampling, name))
        self._quiet = False

    def store(self, talk: Conversation) -> None:
        """Write the fields into a conversation."""
        talk.system = self.system.toPlainText().strip()
        talk.sampling = Sampling.from_dict({name: box.value() for name, box in self._boxes.items()})

    def _reset(self) -> None:
        usual = Conversation().sampling
        for name, box in self._boxes.items():
            box.setValue(getattr(usual, name))

    def _tell(self) -> None:
        if not self._quiet:
            self.changed.emit()


_WHOLE = {"max_tokens": (1, 32_768), "top_k": (0, 1000), "seed": (0, 2**31 - 1)}
_FRACTIONS = {"temperature": (0.0, 5.0), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0), "repetition_penalty": (0.5, 3.0)}


def _box(name: str, parent: QWidget) -> QSpinBox | QDoubleSpinBox:
    if name in _WHOLE:
        box = QSpinBox(parent)
        box.setRange(*_WHOLE[name])
        box.setSingleStep(64 if name == "max_tokens" else 1)
        return box
    fraction = QDoubleSpinBox(parent)
    fraction.setRange(*_FRACTIONS[name])
    fraction.setSingleStep(0.05)
    return fraction
