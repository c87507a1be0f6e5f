"""The settings as the window uses them: changed at once in memory, saved on a worker thread, announced by a signal.

The file belongs to the command line as well: what it writes while the window is open takes effect here at once.
"""

from __future__ import annotations

import threading

from PySide6.QtCore import QFileSystemWatcher, QObject, Signal

from tunesmith_core.errors import TunesmithError
from tunesmith_core.settings import Settings, SettingsFile, settings_path
from tunesmith_gui.background import Job


class Preferences(QObject):
    """Read `values`, write by `change(name=value)`.

    Signals:
        changed: a setting has another value, by this window or by another process.
        save_failed: (TunesmithError) the file could not be written; the values hold until the window is closed.
    """

    changed = Signal()
    save_failed = Signal(object)

    def __init__(self, file: SettingsFile) -> None:
        super().__init__()
        self._file = file
        self._writing = threading.Lock()
        # The folder: the file is replaced as a whole, which ends a watch on it.
        self._watcher = QFileSystemWatcher(self)
        self._watcher.directoryChanged.connect(self._refresh)
        self._watch()

    @property
    def values(self) -> Settings:
        """The settings in force."""
        return self._file.values

    @property
    def problem(self) -> TunesmithError | None:
        """What was wrong with the file at start."""
        return self._file.problem

    def change(self, **values: object) -> None:
        """Sets values and saves them in the background.

        Raises:
            UserError: `setting-invalid` when a name or value does not fit.
        """
        before = self._file.values
        self._file.change(**values)
        if self._file.values == before:
            return
        Job.start(self, self._save, self._announce, self.save_failed.emit)
        self.changed.emit()

    def follow_root(self) -> None:
        """Another data root was chosen: the file there is the one from now on; its values are the same."""
        self._file.path = settings_path()
        self._watch()

    def _watch(self) -> None:
        """Watch the folder of the file, or where it will be made."""
        folder = self._file.path.parent
        wanted = str(folder if folder.is_dir() else folder.parent)
        watched = self._watcher.directories()
        if watched != [wanted]:
            if watched:
                self._watcher.removePaths(watched)
            self._watcher.addPath(wanted)

    def _refresh(self, _folder: str) -> None:
        self._watch()
        Job.start(self, self._reread, self._announce, self.save_failed.emit)

    def _reread(self) -> Settings:
        with self._writing:
            before = self._file.values
            self._file.refresh()
            return before

    def _save(self) -> Settings:
        with self._writing:
            before = self._file.values
            self._file.save()
            return before

    def _announce(self, before: Settings) -> None:
        if self.values != before:  # another process changed settings, too
            self.changed.emit()
