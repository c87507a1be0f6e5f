"""A run's page, the same while the run is live and years later: it reads the journal and the frozen spec only."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QCoreApplication, QEvent, Qt, QTimer, Signal
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget

from tunesmith_core import votes
from tunesmith_core.errors import TunesmithError
from tunesmith_core.evaluations import newest
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, RunState, RunStatus, silenced
from tunesmith_core.spec import RunSpec
from tunesmith_core.trash import Deleted
from tunesmith_core.votes import Kept
from tunesmith_gui.context import Context
from tunesmith_gui.dashboard.actions import DashboardActions
from tunesmith_gui.dashboard.banners import banner_key, make_banner
from tunesmith_gui.dashboard.evaluation_pane import EvaluationPane
from tunesmith_gui.dashboard.examined import Examined, examine
from tunesmith_gui.dashboard.header import DashboardHeader
from tunesmith_gui.dashboard.log import LogPane
from tunesmith_gui.dashboard.model import DashboardModel, EventBatch, pack
from tunesmith_gui.dashboard.report import EngineOutput, engine_output
from tunesmith_gui.dashboard.rollouts_pane import RolloutsPane
from tunesmith_gui.dashboard.samples_pane import SamplesPane
from tunesmith_gui.dashboard.tab_panes import TabPanes
from tunesmith_gui.dashboard.tables import CheckpointsTable, FilesTable, SettingsPane, list_files
from tunesmith_gui.models.run_words import doing_words
from tunesmith_gui.page import Page
from tunesmith_gui.services.journal_tail import Follow
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.announcer import Announcer
from tunesmith_gui.widgets.banner import Banner, BannerAction, Tone
from tunesmith_gui.widgets.safe_label import SafeLabel

if TYPE_CHECKING:
    from tunesmith_gui.dashboard.charts import DashboardCharts

REPAINT_MS = 200
SECOND_LOOK_MS = 500
STAY_MS = 1500
"""A page that is left sooner loads no model."""
LIFE_CHECK_EVERY = 10
"""Repaints between two looks at heartbeat and lease."""


class DashboardPage(Page):
    """Build and bind: everything it shows is folded in `dashboard.model`.

    Signals:
        repainted: it shows what has happened by now.
    """

    repainted = Signal()

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.run: Run | None = None
        self.model = DashboardModel()
        self.charts: DashboardCharts | None = None
        self._name = ""
        self.spec: RunSpec | None = None
        self._follow: Follow | None = None
        self._dirty = False
        self._num_ticks = 0
        self._num_dead_looks = 0
        self._heartbeat_at: float | None = None
        self._banner: Banner | None = None
        self._banner_key: tuple[object, ...] = ()
        self._files_key: tuple[object, ...] = ()
        self._kept = False
        self._found_damage = False
        self._knows_all = False
        self._warmed = False
        self._said: tuple[RunState, str] | None = None
        self._announcer = Announcer(self)
        self._actions = DashboardActions(self)
        self._notice: Banner | None = None
        self._deleted_base: Deleted | None = None
        self._build()
        self._tick = QTimer(self)
        self._tick.setInterval(REPAINT_MS)
        self._tick.timeout.connect(self._on_tick)
        self._second_look = QTimer(self)
        self._second_look.setSingleShot(True)
        self._second_look.setInterval(SECOND_LOOK_MS)
        self._second_look.timeout.connect(self._check_life)
        self._stay = QTimer(self)
        self._stay.setSingleShot(True)
        self._stay.setInterval(STAY_MS)
        self._stay.timeout.connect(self._warm_ended)
        self.run_in_background(_import_charts, self._build_charts)

    def _build(self) -> None:
        area = self._area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)
        holder = QWidget(area)
        area.setWidget(holder)
        column = QVBoxLayout(holder)
        bar = area.verticalScrollBar()

        def keep_width(low: int, high: int) -> None:
            # What is shown is as wide with a scroll bar as without.
            column.setContentsMargins(
                SPACE * 3, SPACE * 2, SPACE * 3 + (0 if high > low else bar.sizeHint().width()), 0
            )

        bar.rangeChanged.connect(keep_width)
        keep_width(bar.minimum(), bar.maximum())
        column.setSpacing(SPACE * 2)
        self.header = DashboardHeader(holder)
        self.header.asked.connect(self.ask)
        column.addWidget(self.header)
        self._banner_place = QVBoxLayout()
        column.addLayout(self._banner_place)
        self._notice_place = QVBoxLayout()
        column.addLayout(self._notice_place)
        self.panes = TabPanes(self.tr("Parts of the run"), parent=holder)
        self.log_pane = LogPane(self)
        self.log_pane.output_wanted.connect(self._read_output)
        self.log = self.log_pane.console
        self.evaluation = EvaluationPane(self)
        self.evaluation.asked.connect(self.ask)
        self.rollouts = RolloutsPane(self)
        self.samples = SamplesPane(self)
        self.samples.asked.connect(self._sample)
        self.checkpoints = CheckpointsTable(self)
        self.settings_pane = SettingsPane(self)
        self.settings_used = self.settings_pane.table
        self.files = FilesTable(self)
        loading = SafeLabel(self.tr("Loading the charts…"), tone="muted", parent=self)
        loading.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.panes.add("charts", self.tr("Charts"), loading)
        self.panes.add("rollouts", self.tr("Answers"), self.rollouts)
        self.panes.set_shown("rollouts", is_shown=False)
        self.panes.add("evaluation", self.tr("Evaluation"), self.evaluation)
        self.panes.add("log", self.tr("Log"), self.log_pane)
        self.panes.add("samples", self.tr("Samples"), self.samples)
        self.panes.add("checkpoints", self.tr("Checkpoints"), self.checkpoints)
        self.panes.add("settings", self.tr("Settings used"), self.settings_pane)
        self.panes.add("files", self.tr("Files"), self.files)
        self.panes.changed.connect(self._on_pane)
        column.addWidget(self.panes, 1)

    @property
    def title(self) -> str:
        """The run's name."""
        return self._name

    def on_shown(self, argument: object = None) -> None:
        """Show the run with an id, or go on with the one shown before."""
        if isinstance(argument, str) and (self.run is None or argument != self.run.id):
            self._open(argument)
            self.panes.show_pane("charts")
        else:
            self.examine()
        self._read_votes()
        self._dirty = True
        self._tick.start()
        self._stay.start()

    def on_hidden(self) -> None:
        """Repaint nothing; the journal is still taken in, so that coming back is immediate."""
        self._tick.stop()
        self._stay.stop()

    def perform(self, action: str) -> bool:
        """Stop, log, full screen, find and diagnostics by keyboard."""
        if action == "stop_run" and self.model.status.state.live:
            self.ask("stop")
        elif action == "log":
            self.ask("show_log")
        elif action == "chart_full_screen" and self.charts is not None:
            self.charts.chart_under_focus().enlarge()
        elif action == "find":
            self.ask("show_log")
            self.log_pane.source.set_value("log")
            self.log.search.setFocus()
        elif action == "copy_diagnostics" and self.run is not None:
            self.ask("copy_diagnostics")
        else:
            return False
        return True

    def _open(self, run_id: str) -> None:
        service = self.context.runs
        if self._follow is not None:
            service.tail.cancel(self._follow)
        self.run, self.model, self.spec, self._kept = service.run(run_id), DashboardModel(), None, False
        self._name, self._heartbeat_at, self._num_dead_looks, self._said = run_id, None, 0, None
        self._found_damage = self._knows_all = self._warmed = False
        self._second_look.stop()
        self._drop_banner()
        self._drop_notice()
        self._deleted_base = None
        self._area.verticalScrollBar().setValue(0)
        self._files_key = ()
        self.files.set_files([])
        self.settings_pane.clear()
        self.samples.prompt.clear()
        self.evaluation.measured.set_run(self.run.path)
        self._read_evaluation(self.run)
        self.log.set_lines(self.model.log)
        self.log_pane.show_output(EngineOutput("", "none"))
        self._read_output()
        self._follow = service.tail.follow(self.run.journal_path, pack, self._receive, self._unreadable, self)
        self.examine()
        self._check_life()
        self.title_changed.emit()

    def examine(self) -> None:
        """Look into the run's folder again."""
        run = self.run
        if run is not None:
            status = replace(self.model.status)
            self.run_in_background(lambda: examine(run, status), lambda found: self._take_examined(found, status.state))

    def _take_examined(self, found: Examined, state: RunState) -> None:
        if found.run is not self.run:
            return
        if self._found_damage and found.damage is None:
            # It was restored meanwhile.
            self.reopen(found.run.id)
            return
        self._found_damage = found.damage is not None
        self.spec, self._name, self._dirty = found.spec, found.name, True
        self.model.unreadable = found.unreadable
        if state is self.model.status.state:
            # One that was looked for before the run had ended says nothing of it.
            self.model.adapter_problem = found.adapter_problem
        self.model.set_damage(found.damage or self.model.damage)
        self._banner_key = ()
        self._tell_deleted(found)
        if found.spec is not None:
            self.evaluation.rate.show_run(found.run, found.spec)
        if found.spec is not None and not self.samples.prompt.text():
            self.samples.prompt.setText(next(iter(found.spec.evaluation.sample_prompts), ""))
        self._announce()
        self.title_changed.emit()

    def _tell_deleted(self, found: Examined) -> None:
        """Say that the base model is in the trash, until it is back: what was trained is of no use without it."""
        told, deleted = self._deleted_base, found.deleted_base
        self._deleted_base = deleted
        if deleted is not None and deleted != told:
            words = self.tr("Without it this run can’t be resumed, asked, evaluated or exported in most formats.")
            title = fill(self.tr("The base model %1 is in the trash"), deleted.name)
            restore = (self.tr("Restore it"), lambda: self.ask("restore_base"))
            self.show_notice("warn", title, words, (restore,))
        elif told is not None and deleted is None:
            self._drop_notice()

    def _receive(self, batches: list[EventBatch]) -> None:
        first, state = not len(self.model.steps), self.model.status.state
        request = self.model.sample_request
        waited = request is not None and request.outcome == "waiting"
        self.model.apply(batches)
        self._dirty = True
        if self.model.status.state is not state and self.model.status.state is RunState.FINISHED:
            self.examine()
        self._warm(state)
        if request is not None and waited and request.outcome == "answered":
            self._announcer.say(fill(self.tr("The model answered: %1"), self.model.samples[-1].text))
        self._kept = self._kept and not self.model.status.state.live
        self._announce()
        if not self._knows_all and self._follow is not None and self._follow.caught_up:
            self._knows_all = True
            self.model.set_damage(self.model.damage or self._follow.reader.damage())
            if self.model.status.state.live:
                # The look when the page was opened could not yet tell a pause that the journal doesn't know of.
                self._check_life()
        if first and len(self.model.steps) and self._tick.isActive():
            self._repaint()

    def _warm(self, before: RunState) -> None:
        """Load the model once the last step is done, and again when the run has ended: who watches will try it next."""
        status, run = self.model.status, self.run
        if run is None or not (before.live and self._knows_all and self._tick.isActive()):
            return
        ends = status.state.live and 0 < status.total_steps <= status.step
        if status.state is RunState.FINISHED or (ends and not self._warmed):
            self._warmed = True
            self.context.chat.warm(run)

    def _warm_ended(self) -> None:
        """Load what an ended run has trained for a person who looks at it for a while, unless something trains."""
        run, chat = self.run, self.context.chat
        if not self._knows_all:
            # Whether the run has ended is not known yet.
            self._stay.start()
            return
        if run is None or chat.is_loaded(run) or self.context.runs.live_runs():
            return
        if self.model.status.state in (RunState.FINISHED, RunState.STOPPED):
            chat.warm(run)

    def _unreadable(self, error: TunesmithError) -> None:
        self._follow = None
        self.notify.emit("error", core_text(error.message))
        if error.code == "run-damaged":
            self.model.set_damage(error)
            self._check_life()

    def _announce(self) -> None:
        """Tell a screen reader of another phase and of the end, but not of what was there when the page opened."""
        status = self.model.status
        now = (status.state, status.phase)
        if self._follow is None or not self._follow.caught_up or now == self._said:
            return
        before, self._said = self._said, now
        if before is not None and self._tick.isActive():
            self._announcer.say(fill(self.tr("%1: %2"), self._name, doing_words(status)))

    def _read_evaluation(self, run: Run) -> None:
        def take(found: dict[str, Any]) -> None:  # Any: JSON values
            if run is self.run and found:
                self.evaluation.measured.set_found(found)

        self.run_in_background(lambda: newest(run), take)

    def _read_votes(self) -> None:
        """Read the votes each time the page comes to the front: they are taken on another one."""
        run = self.run
        if run is None:
            return

        def take(kept: Kept) -> None:
            if run is self.run:
                self.evaluation.votes.show_votes(kept)

        self.run_in_background(lambda: votes.load(run), take)

    def _read_output(self) -> None:
        run = self.run
        if run is not None and self.panes.key == "log" and self.log_pane.source.value == "output":
            self.run_in_background(lambda: (run, engine_output(run.path)), self._take_output)

    def _take_output(self, found: tuple[Run, EngineOutput]) -> None:
        run, output = found
        if run is self.run:
            self.log_pane.show_output(output)

    def _on_tick(self) -> None:
        self._num_ticks += 1
        if self._num_ticks % LIFE_CHECK_EVERY == 0 and self.model.status.state.live:
            self._check_life()
            self._read_output()
        if self._dirty or (self.model.status.state.live and self._num_ticks % 5 == 0):
            self._repaint()

    def _repaint(self) -> None:
        self._dirty = False
        self.repainted.emit()
        place = self.context.runs.place(self.run.id) if self.run is not None else None
        self.header.show_model(self._name, self.model, place)
        self._show_banner()
        if self.panes.key == "charts" and self.charts is not None:
            self.charts.show_model(self.model)
        elif self.panes.key == "log":
            self.log.refresh()
        self.panes.offer("samples", self.model.writes)
        self.samples.show_model(self.model)
        self.panes.set_shown("rollouts", is_shown=self.model.has_rewards or bool(self.model.group))
        if self.panes.key == "rollouts":
            self.rollouts.show_model(self.model)
        if self.panes.key == "evaluation":
            self.evaluation.show_model(self.model)
        self.checkpoints.set_checkpoints(self.model.checkpoints)
        self.settings_pane.show_settings(self.spec, self.model)
        self._read_files()
        self._lay_out()

    def _lay_out(self) -> None:
        """Make room for what has changed before the page is painted.

        Layouts ask for room one after the other, from within outwards, and Qt paints as soon as the first of them has
        it: the page was seen squeezed into the height that it had before, on a busy computer for seconds. Of what a
        layout takes in and nobody has shown, Qt thinks even later.
        """
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)

    def _on_pane(self, _key: str) -> None:
        self._dirty, self._files_key = True, ()
        self._read_output()
        self._lay_out()

    def _read_files(self) -> None:
        """List the files again where the run has written some: readings come every other second while it is live."""
        run, status = self.run, self.model.status
        key = (status.state, len(self.model.checkpoints), len(self.model.memory))
        if run is None or self.panes.key != "files" or key == self._files_key:
            return
        self._files_key = key
        self.run_in_background(lambda: (run, list_files(run.path)), self._take_files)

    def _take_files(self, found: tuple[Run, list[tuple[str, int, float]]]) -> None:
        run, files = found
        if run is self.run:
            self.files.set_files(files)

    def _check_life(self) -> None:
        run = self.run
        if run is not None:
            status = replace(self.model.status, last_event_at=self.model.heard_at)
            self.run_in_background(lambda: (run, *_life(run, status)), self._take_life)

    def _take_life(self, found: tuple[Run, bool, float | None, Event | None]) -> None:
        run, supervised, heartbeat_at, silence = found
        if run is not self.run:
            return
        self._heartbeat_at = heartbeat_at
        status = self.model.status
        if supervised and silence is not None and self.model.heard_at == silence.t:
            self.model.apply(pack([silence]))
            self._dirty = True
            self._announce()
        if supervised or not status.state.live:
            self._num_dead_looks = 0
            return
        has_all = self.model.damage is not None if self._follow is None else self._follow.caught_up
        self._num_dead_looks += has_all
        if self._num_dead_looks > 1:
            self.model.end_unattended()
            self._dirty = True
            self._announce()
        else:
            # Its last words may still be on their way through the tail: one more look before it counts as dead.
            self._second_look.start()

    def _show_banner(self) -> None:
        silent = self.model.silent_since(time.time(), self._heartbeat_at)
        key = banner_key(self.model, silent)
        if key == self._banner_key or self.run is None:
            return
        self._drop_banner()
        self._banner_key = key
        if self._kept and self.model.status.state is RunState.INTERRUPTED:
            return
        self._banner = make_banner(self.model, self.spec, self.run.path, silent, self.ask, self)
        if self._banner is not None:
            self._banner_place.addWidget(self._banner)
            self._banner.show()

    def _drop_banner(self) -> None:
        if self._banner is not None:
            self._banner_place.removeWidget(self._banner)
            self._banner.setParent(None)
            self._banner.deleteLater()
        self._banner, self._banner_key = None, ()

    def _build_charts(self, _imported: None) -> None:
        from tunesmith_gui.dashboard.charts import DashboardCharts

        self.charts = DashboardCharts()
        self.charts.show_model(self.model)
        self.panes.replace("charts", self.charts)
        self._dirty = True
        self._lay_out()

    def ask(self, action: str) -> None:
        """Do what a button or menu entry names."""
        if self.run is not None:
            self._actions.do(action, self.run)

    def _sample(self, prompt: str) -> None:
        if self.run is not None:
            self._actions.sample(prompt, self.run)

    # What the actions do to the page

    def repaint_soon(self) -> None:
        """Show with the next tick what has changed."""
        self._dirty = True

    def keep_as_it_is(self) -> None:
        """Say no more that the run was interrupted."""
        self._kept = True
        self._drop_banner()

    def show_notice(self, tone: Tone, title: str, text: str, actions: tuple[BannerAction, ...]) -> None:
        """Say something with its next steps until it is dismissed or another run is shown."""
        self._drop_notice()
        self._notice = Banner(tone, title, text, actions=actions, dismissable=True, parent=self)
        self._notice_place.addWidget(self._notice)
        self._notice.show()
        self._lay_out()

    def _drop_notice(self) -> None:
        if self._notice is not None:
            self._notice_place.removeWidget(self._notice)
            self._notice.setParent(None)
            self._notice.deleteLater()
            self._notice = None

    def reopen(self, run_id: str) -> None:
        """Read a run again from its beginning, if it is the one that is shown."""
        if self.run is not None and self.run.id == run_id:
            self.run = None
            self._open(run_id)


def _import_charts() -> None:
    import tunesmith_gui.dashboard.charts  # noqa: F401 - half a second of imports, off the UI thread


def _life(run: Run, status: RunStatus) -> tuple[bool, float | None, Event | None]:
    try:
        heartbeat_at = run.heartbeat_path.stat().st_mtime
    except OSError:
        heartbeat_at = None
    return run.is_supervised(), heartbeat_at, silenced(run, status, time.time())
