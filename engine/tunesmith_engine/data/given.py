"""The files that a data source means: one file, what a compressed one holds, or all that a folder or archive holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.datafmt import documents, file_kind
from tunesmith_core.datafmt.encoding import (
    DOCX,
    FOLDER,
    GZ,
    HTML,
    MAX_NAME,
    PDF,
    WORKBOOKS,
    ZIP,
    ZST,
    DataFile,
    parse_error,
)
from tunesmith_core.datafmt.reading import KIND_OF_SUFFIX
from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message, joined
from tunesmith_engine.data.members import MAX_ENTRIES, compressed, is_plain_name, zip_members

DOCUMENTS = frozenset({documents.PLAIN, documents.MARKDOWN, HTML, DOCX, PDF})
NOTICES = frozenset({"readme", "license", "licence", "copying", "notice", "changelog", "citation", "authors"})
"""Names of documents that accompany a set of data and are none of it."""

METADATA = frozenset({"dataset_info", "dataset_infos", "config"})
"""Names of files that describe a set of data."""

READ_SUFFIXES = {*KIND_OF_SUFFIX, *WORKBOOKS, ".parquet", ".arrow", ".pdf", ".docx"}
"""Endings of names of files that ought to be readable: one that is not is no file of another kind, but damaged."""

STATE, SPLITS, MAX_STATE_BYTES = "state.json", "dataset_dict.json", 16 * 1024**2
"""What `datasets` writes beside the tables of a saved set."""

UNREAD = "dataset-parts-unread"
TRAIN = "train"
MAX_NAMED = 5


class Given:
    """What one path gives.

    Attributes:
        skipped: names of the files that are not read.
        problems: what is wrong with those that ought to be readable.
        notes: what a person should know of what is not read: codes and sentences.
    """

    def __init__(self, path: Path) -> None:
        """Take a path; nothing is opened yet."""
        self._path = path
        self.skipped: list[str] = []
        self.problems: list[UserError] = []
        self.notes: dict[str, str] = {}

    def files(self) -> Iterator[tuple[DataFile, str]]:
        """Yield files and their kinds.

        Raises:
            UserError: `dataset-parse-error` or `dataset-empty` when there is nothing to read.
        """
        kind = file_kind(self._path)
        if kind not in (GZ, ZST, ZIP, FOLDER):
            yield self._path, kind
            return
        if kind in (GZ, ZST):
            yield _inside(self._path, kind)
            return
        found = list(self._listed(zip_members(self._path) if kind == ZIP else _files_of(self._path, self.notes)))
        if not found and self.problems:
            raise self.problems[0]
        if not found:
            names = _named(self.skipped) or Message("none")
            raise parse_error(self._path, "there is no file that can be read. The files are: {names}.", names=names)
        if unread := list(self._unread()):
            self.notes.setdefault(UNREAD, joined(unread))
        yield from found

    def leave_out(self, error: UserError) -> None:
        """Note that one of several files is not read, of which nothing can be."""
        self.problems.append(error)
        self.notes[UNREAD] = joined(self._unread())

    def _unread(self) -> Iterator[Message]:
        """Yield sentences about the files that are left out: those of other kinds by name, others with the reason."""
        if self.skipped:
            yield Message(
                "{path} has files that are not read ({num}): {names}.",
                path=self._path,
                num=len(self.skipped),
                names=_named(self.skipped),
            )
        for error in self.problems[:MAX_NAMED]:
            yield Message("{problem} The file is left out.", problem=error.message)
        if len(self.problems) > MAX_NAMED:
            yield Message("Further files can't be read: {num}.", num=len(self.problems) - MAX_NAMED)

    def _listed(self, candidates: Iterable[DataFile]) -> list[tuple[DataFile, str]]:
        """Return what can be read among files; notices beside data are left out."""
        found: list[tuple[DataFile, str]] = []
        notices: list[tuple[DataFile, str]] = []
        for file in candidates:
            name = Path(file.name).name
            if name.startswith((".", "__MACOSX")) or "__MACOSX/" in file.name:
                continue
            try:
                kind = file_kind(file)
                if kind in (GZ, ZST, ZIP):
                    file, kind = _nested(file, kind)
            except UserError as error:
                inner = name.lower().removesuffix(".gz").removesuffix(".zst")
                if Path(inner).suffix not in READ_SUFFIXES:
                    self.skipped.append(name)
                    continue
                # An archive with damage in it may hold more: it is to be copied again.
                if error.code != "dataset-empty" and not isinstance(file, Path):
                    raise
                self.problems.append(error)
                continue
            stem = name.partition(".")[0].lower()
            is_notice = stem in METADATA or (kind in DOCUMENTS and stem in NOTICES)
            (notices if is_notice else found).append((file, kind))
        if found:
            self.skipped += [Path(file.name).name for file, _ in notices]
        return found or notices


def _nested(file: DataFile, kind: str) -> tuple[DataFile, str]:
    if kind == ZIP:
        raise parse_error(file, "an archive inside of another is not read.")
    return _inside(file, kind)


def _inside(path: DataFile, kind: str) -> tuple[DataFile, str]:
    member = compressed(path, kind)
    inner = file_kind(member)
    if inner in (GZ, ZST, ZIP):
        raise parse_error(path, "an archive inside of another is not read.")
    return member, inner


def _named(names: list[str]) -> str:
    return ", ".join(name[:MAX_NAME] for name in names[:MAX_NAMED]) + ("..." if len(names) > MAX_NAMED else "")


def _files_of(folder: Path, notes: dict[str, str]) -> list[Path]:
    """Return the files of a folder and those below it in the order of their names, hidden ones left out."""
    if (folder / SPLITS).is_file():
        return _saved_splits(folder, notes)
    if (folder / STATE).is_file():
        return _saved_tables(folder)
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place) / name for name in names if not name.startswith(".")]
        if len(found) > MAX_ENTRIES:
            raise parse_error(folder, "the folder holds more than {most:,} files.", most=MAX_ENTRIES)
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def _saved_splits(folder: Path, notes: dict[str, str]) -> list[Path]:
    """Return the tables of the split for training, or of the first, of a set that `datasets` saved."""
    values = _state(folder / SPLITS)
    listed = values.get("splits")
    names = listed if isinstance(listed, list) else []
    splits = [name for name in names if isinstance(name, str) and is_plain_name(name)]
    if not splits:
        raise parse_error(folder / SPLITS, "no splits are listed.")
    chosen = TRAIN if TRAIN in splits else splits[0]
    others = [name for name in splits if name != chosen]
    if others:
        notes[UNREAD] = Message(
            "{path} has splits that are not read: {names}.", path=folder, names=_named(others)
        )
    return _saved_tables(folder / chosen)


def _saved_tables(folder: Path) -> list[Path]:
    listed = _state(folder / STATE).get("_data_files")
    tables = listed if isinstance(listed, list) else []
    names = [str(each.get("filename")) for each in tables if isinstance(each, dict)]
    if not names or not all(map(is_plain_name, names)):
        raise parse_error(folder / STATE, "no tables are listed.")
    return [folder / name for name in names]


def _state(path: Path) -> dict[str, object]:
    try:
        values = files.read_foreign_json(path, MAX_STATE_BYTES)
    except (OSError, ValueError) as error:
        raise parse_error(path, "the file can't be read: {reason}.", reason=Message(str(error)[:200])) from error
    if not isinstance(values, dict):
        raise parse_error(path, "the file can't be read: {reason}.", reason=Message("not an object"))
    return values
