"""The question where a copy of the rows is saved: beside their file first, and with the ending of what is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

from PySide6.QtCore import QStandardPaths
from PySide6.QtWidgets import QWidget

from tunesmith_assets import samples
from tunesmith_core import paths
from tunesmith_core.operations.kinds.data import WRITTEN
from tunesmith_gui.tr import fill, listed, translate
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.save_file import ask_where_to_save

JSON_LINES, CSV = WRITTEN[:2]


def ask_for_copy(
    parent: QWidget, title: str, original: Path, addition: str, endings: tuple[str, ...] = (JSON_LINES,)
) -> Path | None:
    """Return where to write a copy, None where the person changed their mind; the name says what it becomes.

    Args:
        parent: the window asks over it.
        title: of the question.
        original: the file whose rows are copied.
        addition: what the proposed name adds to that of the file, such as "-edited".
        endings: of what it can be, the one that is proposed first.
    """
    kinds = {
        JSON_LINES: translate("CopyName", "JSON Lines (*.jsonl)"),
        CSV: translate("CopyName", "CSV, UTF-8 (*.csv)"),
        ".parquet": translate("CopyName", "Parquet (*.parquet)"),
    }
    offered = ";;".join(kinds[each] for each in endings)
    path = ask_where_to_save(parent, title, f"{original.stem}{addition}{endings[0]}", offered, folder=_folder(original))
    if path is None or path.suffix.lower() in endings:
        return path
    renamed = path.with_suffix(JSON_LINES)
    words = translate("CopyName", "This copy can't be saved as %1. It can end in %2.")
    words = fill(words, path.suffix, listed(endings))
    # The first question was about another name.
    note = translate("CopyName", "A file with this name exists and will be replaced.") if renamed.exists() else ""
    question = translate("CopyName", "Save as JSON Lines?")
    accept = fill(translate("CopyName", "Save as %1"), renamed.name)
    dialog = ConfirmDialog(question, words, note, accept, parent.window(), danger=bool(note))
    answer = dialog.exec()
    dialog.deleteLater()
    return renamed if answer else None


def usual_copy(original: Path, addition: str, continues: Callable[[Path], bool]) -> Path:
    """Return where a copy is saved unless the person says otherwise: under a name that nothing has yet.

    Args:
        original: the file or folder that it is made of.
        addition: what its name adds to that of the original.
        continues: says of a file that is there whether it is to be continued.
    """
    documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
    folder = _folder(original) or (Path(documents) if Path(documents).is_dir() else Path.home())
    name = f"{original.stem}{addition}"
    names = chain([name], (paths.numbered(name, number) for number in count(2)))
    copies = (folder / f"{each}{JSON_LINES}" for each in names)
    return next(path for path in copies if not path.exists() or continues(path))


def _folder(original: Path) -> Path | None:
    """The folder of a file, unless it is the program's own or can't be written to."""
    folder = original.parent
    is_sample = folder in [samples.sample_folder(language) for language in samples.LANGUAGES]
    return folder if os.access(folder, os.W_OK) and not is_sample else None
