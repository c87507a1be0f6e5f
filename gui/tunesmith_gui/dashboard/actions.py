"""What the buttons and menu entries of a run's page do. No layout here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication

from tunesmith_core import votes
from tunesmith_core.actions import ACTIONS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.memory_steps import MEMORY_STEPS
from tunesmith_core.model_folder import restore_base
from tunesmith_core.next_steps import LOOK_AT_ROWS
from tunesmith_core.report.page import write as write_report
from tunesmith_core.report.pdf import write_pdf
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_gui.dashboard.model import SampleRequest
from tunesmith_gui.dashboard.report import command_line, diagnostics, written_report
from tunesmith_gui.export.sheet import open_sheet
from tunesmith_gui.models.run_row import RunContents, contents_of
from tunesmith_gui.models.run_spec import AtSetting, Proposal, continued_spec, duplicate_spec, fixed_spec, to_look_at
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.few_votes import may_train
from tunesmith_gui.widgets.save_file import ask_where_to_save

if TYPE_CHECKING:
    from tunesmith_gui.dashboard.page import DashboardPage


class DashboardActions(QObject):
    """Acts on the run that a page shows."""

    def __init__(self, page: DashboardPage) -> None:
        super().__init__(page)
        self._page = page

    def do(self, action: str, run: Run) -> None:
        """Do what a button or menu entry names."""
        page, service = self._page, self._page.context.runs
        match action:
            case "back":
                page.navigate.emit("runs", None)
            case "try":
                page.navigate.emit("chat", run.id)
            case "export":
                open_sheet(page, run, page.title)
            case "vote":
                page.navigate.emit("vote", run.id)
            case "train_on_votes":
                page.run_in_background(lambda: votes.load(run), lambda kept: self._train_on_votes(run, kept))
            case "stop":
                self._ask_stop(run)
            case "checkpoint" | "evaluate":
                service.send(run.id, action)
            case "sample":
                page.panes.show_pane("samples")
                page.samples.begin()
            case "resume":
                service.resume(run.id, lambda _id: page.reopen(run.id))
            case "duplicate":
                if (spec := self._spec_to_copy()) is not None:
                    page.navigate.emit("train", duplicate_spec(spec))
            case "continue":
                if (spec := self._spec_to_copy()) is not None:
                    page.navigate.emit("train", continued_spec(spec, run.adapter_path))
            case "restore_base":
                page.run_in_background(lambda: restore_base(run), lambda _nothing: page.examine())
            case "delete":
                self._ask_delete(run)
            case "keep":
                page.keep_as_it_is()
            case "show_rollouts":
                page.panes.show_pane("rollouts")
            case "show_log":
                page.panes.show_pane("log")
            case _ if action.startswith("retry:"):
                self._retry(action.removeprefix("retry:"))
            case _ if action.startswith("next:"):
                self._next(int(action.removeprefix("next:")))
            case _ if action.startswith("fix:"):
                self._fix(action.removeprefix("fix:"))
            case _:
                self._hand_out(action, run)

    def sample(self, prompt: str, run: Run) -> None:
        """Ask a live run for an answer."""
        page = self._page
        request = page.model.sample_request = SampleRequest(prompt)
        page.repaint_soon()

        def failed(error: TunesmithError) -> None:
            request.fail(error.message)
            page.repaint_soon()

        page.context.runs.send(run.id, "sample", failed, prompt=prompt)

    def _train_on_votes(self, run: Run, kept: votes.Kept) -> None:
        page = self._page
        if may_train(kept, page.window()):
            page.run_in_background(
                lambda: votes.spec_to_train(run, kept), lambda spec: page.navigate.emit("train", spec)
            )

    def _spec_to_copy(self) -> RunSpec | None:
        """The run's settings; without them, say why there are none."""
        page = self._page
        if page.spec is None:
            reason = page.model.unreadable
            words = core_text(reason.message) if reason else self.tr("The settings of the run are still loading.")
            page.notify.emit("error" if reason else "warn", words)
        return page.spec

    def _retry(self, name: str) -> None:
        """Start the run again after one step to less memory."""
        if (spec := self._spec_to_copy()) is None:
            return
        step = next(each for each in MEMORY_STEPS if each.name == name)
        smaller = step.take(duplicate_spec(spec))
        if smaller is not None:
            page = self._page
            page.context.runs.start(smaller, lambda new: page.navigate.emit("dashboard", new))

    def _next(self, place: int) -> None:
        """Open the form of another run with what the verdict advises, or the rows of this one."""
        if (spec := self._spec_to_copy()) is None:
            return
        page, model = self._page, self._page.model
        step = model.verdict().next_steps[place]
        if step.name == LOOK_AT_ROWS:
            page.navigate.emit("data", to_look_at(spec, "rows"))
            if (count := len(spec.data.sources)) > 1:
                page.notify.emit("accent", fill(self.tr("The run has %1 data sources. This is the first."), count))
            return
        changes = step.changes(spec, model.status.step, model.num_rows)
        page.navigate.emit("train", Proposal(with_changes(duplicate_spec(spec), changes), tuple(changes)))

    def _fix(self, name: str) -> None:
        """Do what helps: on the Environment page, in the browser, or in the form of a new run."""
        action, page = ACTIONS[name], self._page
        if action.place == "link":
            QDesktopServices.openUrl(QUrl(action.target))
        elif action.place == "run":
            if (spec := self._spec_to_copy()) is not None:
                page.navigate.emit("train", fixed_spec(spec, action.target))
        elif action.place == "setting":
            if (spec := self._spec_to_copy()) is not None:
                page.navigate.emit("train", AtSetting(action.target, duplicate_spec(spec)))
        elif action.place == "page":
            page.navigate.emit(action.target, None)
        else:
            page.navigate.emit("environment", action.target)

    def _hand_out(self, action: str, run: Run) -> None:
        page, folder = self._page, run.path
        if action == "open_folder":
            page.open_folder(folder)
        elif action == "copy_diagnostics":
            model = page.model
            page.run_in_background(lambda: diagnostics(model, folder), self._copy)
        elif action == "copy_command":
            if self._spec_to_copy() is not None:
                self._copy(command_line(folder))
        elif action == "report":
            page.run_in_background(lambda: written_report(folder), lambda path: self._show_report(path, run))
        elif action == "report_html":
            title, kind = self.tr("Save as HTML…"), self.tr("Web pages (*.html)")
            self._save_report(run, write_report, ".html", title, kind)
        elif action == "report_pdf":
            title, kind = self.tr("Save as PDF…"), self.tr("PDF files (*.pdf)")
            self._save_report(run, write_pdf, ".pdf", title, kind)
        elif action == "copy_path":
            self._copy(str(folder / page.model.status.artifacts.get("adapter", "")))

    def _show_report(self, path: Path, run: Run) -> None:
        """Open a report and say where it is: not every browser that fails to start can be told from one that opens."""
        page = self._page
        opens = QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
        if page.run is run:
            page.show_notice(
                "ok" if opens else "warn",
                self.tr("The report is saved.") if opens else self.tr("No browser opened. The report is saved."),
                str(path),
                (
                    (self.tr("Open folder"), lambda: page.open_folder(path.parent)),
                    (self.tr("Copy path"), lambda: self._copy(str(path))),
                ),
            )

    def _save_report(
        self, run: Run, write: Callable[[Run, Path], object], suffix: str, title: str, kind: str
    ) -> None:
        page = self._page
        path = ask_where_to_save(page.window(), title, run.id + suffix, kind)
        if path is not None:
            saved = self.tr("Saved")
            page.run_in_background(lambda: write(run, path), lambda _verdict: page.notify.emit("ok", saved))

    def _copy(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self._page.notify.emit("ok", self.tr("Copied"))

    def _ask_stop(self, run: Run) -> None:
        from tunesmith_gui.dashboard.stop_run import StopRunDialog

        page, status = self._page, self._page.model.status
        paused = status.state is RunState.PAUSED
        dialog = StopRunDialog(page.title, status.step, status.last_checkpoint_step, page.window(), paused=paused)

        def follow() -> None:
            now = page.model.status
            dialog.show_progress(now.step, now.last_checkpoint_step, paused=now.state is RunState.PAUSED)

        page.repainted.connect(follow)
        wanted = dialog.exec() and dialog.mode
        page.repainted.disconnect(follow)
        if wanted:
            page.context.runs.stop(run.id, dialog.mode)

    def _ask_delete(self, run: Run) -> None:
        from tunesmith_gui.widgets.delete_run import DeleteRunDialog

        page = self._page
        row = page.context.library.row(run.id)
        if row is None:
            page.notify.emit("warn", self.tr("The list of runs is still loading. Try again in a moment."))
            return

        def ask(contents: RunContents) -> None:
            dialog = DeleteRunDialog([row], contents, page.window())
            if dialog.exec():
                words = translate("RunsPage", "Moved to the trash, from where runs can be restored.")
                is_kept = dialog.trash.isChecked()

                def tell() -> None:
                    if is_kept:
                        page.offer_undo(words, [row.path], page.context.library.refresh)

                page.context.runs.delete([row.id], dialog.remove, tell)
                page.navigate.emit("runs", None)

        page.run_in_background(lambda: contents_of([row]), ask)
