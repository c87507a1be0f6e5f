"""What is asked about changes that are in no file yet."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.confirm import ConfirmDialog


def ask_to_leave(window: QWidget) -> int:
    """Return `Accepted` to drop the changes, `ConfirmDialog.OTHER` to save them first, `Rejected` to stay."""
    title, drop = translate("Unsaved", "Drop your changes?"), translate("Unsaved", "Drop the changes")
    words = translate("Unsaved", "Your changes to the rows are not saved in a file yet.")
    save = translate("Unsaved", "Save as…")
    return _answer(ConfirmDialog(title, words, "", drop, window, danger=True, other=save))


def ask_to_train(window: QWidget) -> int:
    """Return `Accepted` to save first, `ConfirmDialog.OTHER` to train on the file as it is, `Rejected` to stay."""
    words = translate("Unsaved", "Your changes to the rows are not saved in a file yet. Training reads the file.")
    title, save = translate("Unsaved", "Save your changes first?"), translate("Unsaved", "Save and train")
    return _answer(
        ConfirmDialog(title, words, "", save, window, other=translate("Unsaved", "Train without the changes"))
    )


def ask_to_keep(window: QWidget) -> int:
    """Return `Accepted` to save first, `ConfirmDialog.OTHER` to keep the file as it is, `Rejected` to stay."""
    words = translate("Unsaved", "Your changes to the rows are not saved in a file yet. The library keeps the file.")
    title, save = translate("Unsaved", "Save your changes first?"), translate("Unsaved", "Save and keep")
    other = translate("Unsaved", "Keep without the changes")
    return _answer(ConfirmDialog(title, words, "", save, window, other=other))


def _answer(dialog: ConfirmDialog) -> int:
    answer = dialog.exec()
    dialog.deleteLater()
    return answer
