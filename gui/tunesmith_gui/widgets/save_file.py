"""The question where a file shall be saved, first in the documents of the person, with the ending of its kind."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QStandardPaths
from PySide6.QtWidgets import QFileDialog, QWidget


def ask_where_to_save(
    parent: QWidget,
    title: str,
    file_name: str,
    kind: str,
    *,
    appends: bool = False,
    folder: Path | None = None,
) -> Path | None:
    """Return the chosen path, or None.

    Args:
        parent: the window asks over it.
        title: of the question.
        file_name: proposed; its ending is added to a name without one.
        kind: of file, such as "Text (*.txt)".
        appends: a file that exists is kept and gets longer, so nobody is asked whether to replace it.
        folder: where to save it first; None for the person's documents.
    """
    documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
    start = folder or (documents if Path(documents).is_dir() else Path.home())
    options = QFileDialog.Option.DontConfirmOverwrite if appends else QFileDialog.Option(0)
    chosen, _ = QFileDialog.getSaveFileName(parent, title, str(Path(start) / file_name), kind, "", options)
    if not chosen:
        return None
    path = Path(chosen)
    return path if path.suffix else path.with_name(path.name + Path(file_name).suffix)
