"""One short piece of work in the training environment: an engine subcommand with a spec in and a JSON file out.

For what must die with the window (preview, plan-check), so QProcess is right here; runs go through `core.launch`.
"""

from __future__ import annotations

import copy
import json
import shutil
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, Signal

from tunesmith_core import devices, environments, files, paths
from tunesmith_core.errors import BugError, RunFailure, TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_gui.background import Job

MAX_LOG_CHARACTERS = 8000


class _Prepared(NamedTuple):
    folder: Path
    command: list[str]
    environment: dict[str, str]


class EngineTask(QObject):
    """Runs `tunesmith_engine SUBCOMMAND --spec FILE ARGUMENTS --out FILE` once.

    Signals:
        succeeded: the parsed JSON of the result file.
        failed: a TunesmithError. Neither comes after `cancel`.
    """

    succeeded = Signal(object)
    failed = Signal(object)

    def __init__(self, subcommand: str, spec: RunSpec, *arguments: str, parent: QObject) -> None:
        super().__init__(parent)
        self._subcommand = subcommand
        self._spec = copy.deepcopy(spec)
        self._arguments = arguments
        self._process: QProcess | None = None
        self._folder: Path | None = None
        self._cancelled = False

    def start(self) -> None:
        """Begins; files are written on a worker thread."""
        Job.start(self, self._prepare, self._run, self._fail)

    def cancel(self) -> None:
        """Ends the process, if any, and stays silent."""
        self._cancelled = True
        if self._process is not None and self._process.state() != QProcess.ProcessState.NotRunning:
            self._process.kill()
        else:
            self._dispose()

    def _prepare(self) -> _Prepared:
        folder = paths.tmp_dir() / f"engine-{uuid.uuid4().hex[:12]}"
        arguments = ("--spec", str(folder / "spec.json"), *self._arguments, "--out", str(folder / "result.json"))
        command = environments.engine_command(self._subcommand, *arguments)
        device = devices.device_of(self._spec)
        environment = environments.engine_environment(self._spec.model.path) | device.environment()
        folder.mkdir(parents=True)
        files.atomic_write_json(folder / "spec.json", self._spec.to_dict())
        return _Prepared(folder, command, environment)

    def _run(self, prepared: _Prepared) -> None:
        self._folder = prepared.folder
        if self._cancelled:
            self._dispose()
            return
        process = self._process = QProcess(self)
        variables = QProcessEnvironment()
        for name, value in prepared.environment.items():
            variables.insert(name, value)
        process.setProcessEnvironment(variables)
        process.setProcessChannelMode(QProcess.ProcessChannelMode.MergedChannels)
        process.setStandardInputFile(QProcess.nullDevice())
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_process_error)
        process.start(prepared.command[0], prepared.command[1:])

    def _on_process_error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart and self._process is not None:
            self._fail(BugError("bug", f"The engine could not be started: {self._process.errorString()}"))

    def _on_finished(self, exit_code: int) -> None:
        if self._cancelled or self._process is None or self._folder is None:
            self._dispose()
            return
        log = bytes(self._process.readAll().data()).decode("utf-8", "replace")[-MAX_LOG_CHARACTERS:]
        result = self._folder / "result.json"
        subcommand = self._subcommand
        Job.start(self, lambda: _read_result(result, subcommand, exit_code, log), self._succeed, self._fail)

    def _succeed(self, result: object) -> None:
        if not self._cancelled:
            self.succeeded.emit(result)
        self._dispose()

    def _fail(self, error: TunesmithError) -> None:
        if not self._cancelled:
            self.failed.emit(error)
        self._dispose()

    def _dispose(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            Job.start(self, lambda: shutil.rmtree(folder, ignore_errors=True), self._forget, self._forget)

    def _forget(self, _result: object) -> None:
        self.deleteLater()


def _read_result(path: Path, subcommand: str, exit_code: int, log: str) -> Any:  # Any: JSON values
    """Return the result of a finished engine process; raises the error that the file holds instead of one."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        message = f"The engine's {subcommand} ended with exit code {exit_code} and left no result."
        raise RunFailure("engine-crashed", message, context=log or None) from None
    if isinstance(result, dict) and isinstance(result.get("error"), dict):
        raise TunesmithError.from_dict(result["error"])
    return result
