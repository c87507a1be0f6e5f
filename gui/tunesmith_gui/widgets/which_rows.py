"""What is asked about rows that a model wrote and nobody has reviewed, before they are trained or saved."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from tunesmith_gui.tr import fill, number, translate
from tunesmith_gui.widgets.confirm import ConfirmDialog


def ask_which_rows(window: QWidget, num_unreviewed: int, num_rows: int, note: str, *, are_all: bool = True) -> int:
    """Return `Accepted` for only reviewed rows, `ConfirmDialog.OTHER` for all, `Rejected` for none.

    Rows that no model wrote count as reviewed. Where nothing would be left, only all rows can be had.

    Args:
        window: asked over it.
        num_unreviewed: of these rows.
        num_rows: that were looked at.
        note: what becomes of the file.
        are_all: whether these are all rows.
    """
    title = translate("WhichRows", "Use rows that nobody has reviewed?")
    words = (
        translate("WhichRows", "A model wrote %1 of the %2 rows, and nobody has reviewed them. They may be wrong.")
        if are_all
        else translate(
            "WhichRows", "A model wrote %1 of the first %2 rows, and nobody has reviewed them. They may be wrong."
        )
    )
    words, every = fill(words, number(num_unreviewed), number(num_rows)), translate("WhichRows", "All rows")
    if are_all and num_unreviewed == num_rows:
        answer = _answer(ConfirmDialog(title, words, "", every, window))
        return ConfirmDialog.OTHER if answer else answer
    only = translate("WhichRows", "Only reviewed rows")
    return _answer(ConfirmDialog(title, words, note, only, window, other=every))


def _answer(dialog: ConfirmDialog) -> int:
    answer = dialog.exec()
    dialog.deleteLater()
    return answer
