"""The question before a run that would learn from few votes."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from tunesmith_core.votes import Kept, too_few
from tunesmith_gui.tr import core_text, translate
from tunesmith_gui.widgets.confirm import ConfirmDialog


def may_train(kept: Kept, parent: QWidget) -> bool:
    """Whether there are votes enough to learn from, or a person wants to train on few."""
    few = too_few(kept)
    if few is None:
        return True
    title, go = translate("VotePage", "Train on so few votes?"), translate("VotePage", "Train on them")
    dialog = ConfirmDialog(title, core_text(few), "", go, parent)
    answer = dialog.exec()
    dialog.deleteLater()
    return answer == ConfirmDialog.DialogCode.Accepted
