"""How an export ended: verified equal, written with a warning, or refused with what to do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_core import export_proof, exports
from tunesmith_core.errors import TunesmithError
from tunesmith_gui.export.model import command_words, ending
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, size
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.error_banner import Action, error_banner
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel

Copy = Callable[[str], object]
Answer = dict[str, Any]  # Any: JSON values


class Outcome(QWidget):
    """An export that was written.

    Attributes:
        title: what is said first.
    """

    def __init__(
        self,
        answer: Answer,
        warnings: list[str],
        open_folder: Callable[[Path], object],
        copy: Copy,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._answer = answer
        told = [core_text(each) for each in warnings]
        said = ending(answer, told)
        self.title = f"{said.title}\n{said.text}"
        column = _column(self)
        column.addWidget(Banner(said.tone, said.title, said.text, parent=self))
        for words in dict.fromkeys(each for each in told if each != said.text):
            column.addWidget(SafeLabel(words, tone="warn", wrap=True, parent=self))
        for words in self._facts():
            column.addWidget(SafeLabel(words, tone="muted", wrap=True, selectable=True, parent=self))
        folder = Path(answer["path"])
        self.open = button(self.tr("Open folder"), lambda: open_folder(folder), icon_name="folder", parent=self)
        self.copies = [
            button(command_words(each), lambda line=each: copy(line), icon_name="copy", parent=self)  # type: ignore[misc]
            for each in answer["commands"]
        ]
        column.addWidget(FlowRow([self.open, *self.copies], self))
        column.addStretch(1)

    def _facts(self) -> list[str]:
        answer = self._answer
        told = [fill(self.tr("%1 in %2"), size(answer["bytes"]), answer["path"])]
        if answer["proof"]:
            told.append(core_text(export_proof.NATS_HELP))
        return [*told, *map(core_text, exports.facts(answer))]


class Refusal(QWidget):
    """An export that failed: what happened, why, and the next step."""

    def __init__(self, error: TunesmithError, parent: QWidget | None = None, actions: tuple[Action, ...] = ()) -> None:
        super().__init__(parent)
        column = _column(self)
        column.addWidget(error_banner(error, actions=actions, dismissable=False, parent=self))
        column.addStretch(1)


def _column(widget: QWidget) -> QVBoxLayout:
    column = QVBoxLayout(widget)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(SPACE * 3 // 2)
    return column
