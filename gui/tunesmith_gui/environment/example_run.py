"""The trial of the wizard: a run of the bundled example, started like any other run and followed here."""

from __future__ import annotations

import time

from PySide6.QtCore import QLocale, QObject, Signal

from tunesmith_assets import samples
from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.model_cards import list_models
from tunesmith_core.spec import RunSpec
from tunesmith_gui.background import Job
from tunesmith_gui.services.run_service import RunService


class ExampleRun(QObject):
    """Starts the example and says how it goes.

    Attributes:
        run_id: the run, "" before it was started.
        state: "" before, "going", then the RunState's value at its end.
        step, num_steps: how far it is; 0 when unknown.
        eta_s: time left at the speed so far, None while unknown.
        seconds: how long the whole took.
        problem: why it could not be started, None when it could.

    Signals:
        changed: one of the attributes has another value.
    """

    changed = Signal()

    def __init__(self, runs: RunService, parent: QObject) -> None:
        super().__init__(parent)
        self._runs = runs
        self.run_id = self.state = ""
        self.step = self.num_steps = 0
        self.eta_s: float | None = None
        self._started_s = self.seconds = 0.0
        self.problem: TunesmithError | None = None
        runs.live_runs_changed.connect(self._follow)
        runs.run_ended.connect(self._on_ended)

    def start(self) -> None:
        """Begins, unless it is going."""
        if self.state == "going":
            return
        self.run_id, self.state, self.problem = "", "going", None
        self.step, self.num_steps, self.eta_s = 0, 0, None
        self._started_s = time.monotonic()
        language = "zh" if QLocale().language() == QLocale.Language.Chinese else "en"
        Job.start(self, lambda: _spec(language), self._start, self._fail)
        self.changed.emit()

    def _start(self, spec: RunSpec) -> None:
        self._runs.start(spec, self._started, self._fail)

    def _started(self, run_id: str) -> None:
        self.run_id = run_id
        self.changed.emit()

    def _fail(self, error: TunesmithError) -> None:
        self.state, self.problem = "failed", error
        self.changed.emit()

    def _follow(self) -> None:
        for run in self._runs.live_runs():
            if run.id == self.run_id:
                self.step, self.num_steps, self.eta_s = run.step, run.num_steps, run.eta_s
                self.changed.emit()

    def _on_ended(self, run_id: str, _name: str, state: str) -> None:
        if run_id and run_id == self.run_id:
            self.state, self.seconds = state, time.monotonic() - self._started_s
            self.changed.emit()


def _spec(language: str) -> RunSpec:
    """Return the example with the smallest model on this computer. Raises UserError when there is no model."""
    models = sorted(list_models(paths.models_dir()), key=lambda card: card.num_parameters)
    if not models:
        raise UserError(
            "model-files-missing-or-corrupt", "{folder} holds no model to try it with.", folder=paths.models_dir()
        )
    return RunSpec.from_dict(samples.example_spec(language, str(models[0].path)))
