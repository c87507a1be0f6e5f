"""A model of the hub before it is downloaded: size and room first, what it is, and its card as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from tunesmith_core.downloads import SPARE_BYTES, Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.hub import CARD, FACTS, HubSpec
from tunesmith_core.plain_text import visible
from tunesmith_gui.background import Job
from tunesmith_gui.models.model_words import (
    context_text,
    license_text,
    parameters_text,
    parts_text,
    template_text,
)
from tunesmith_gui.plain_text import window_title
from tunesmith_gui.services.downloads import free_bytes
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, size
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.error_banner import Action, error_banner
from tunesmith_gui.widgets.fitting import fitting_size
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.token_dialog import TokenDialog

_LETTERS, _LINES = 90, 34
_CARD_LINES = 6
_HEADER = re.compile(r"\A\s*---[ \t]*\r?\n.*?^---[ \t]*$", re.DOTALL | re.MULTILINE)
"""Facts for programs at the head of a card."""


class ModelSheet(QDialog):
    """Open it with `open()`; it deletes itself. `folder` is where the model is on this computer already.

    Signals:
        download_asked: (str hub id) the person wants the model.
        train_asked: (Path folder) the person wants to train it.
        other_asked: (str hub id) the person wants to see the repository under its new name.
        setup_asked: there is no training environment yet.
    """

    download_asked = Signal(str)
    train_asked = Signal(object)
    other_asked = Signal(str)
    setup_asked = Signal()

    def __init__(self, hub_id: str, parent: QWidget, *, folder: Path | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.id, self._folder = hub_id, folder
        self.plan: Download | None = None
        self._link = ""
        self._problem: Banner | None = None
        self._tasks: list[OperationTask] = []
        self.setWindowTitle(window_title(hub_id))
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE * 2)
        column.addWidget(SafeLabel(hub_id, role="heading", wrap=True, parent=self))
        self.facts = SafeLabel(self.tr("Asking the hub…"), wrap=True, parent=self)
        self.room = SafeLabel(role="strong", wrap=True, parent=self)
        self._news = QVBoxLayout()
        column.addWidget(self.facts)
        column.addWidget(self.room)
        column.addLayout(self._news)
        self.card = QPlainTextEdit(self)
        self.card.setReadOnly(True)
        self.card.setTabChangesFocus(True)
        self.card.setAccessibleName(self.tr("Model card"))
        self.card.setMinimumHeight(self.fontMetrics().lineSpacing() * _CARD_LINES)
        self._card_head = SafeLabel(self.tr("Model card"), role="strong", parent=self)
        column.addWidget(self._card_head)
        column.addWidget(self.card, 1)
        self._rest = QWidget(self)
        column.addWidget(self._rest, 1)
        column.addLayout(self._build_buttons())
        self.resize(fitting_size(self, _LETTERS, _LINES))
        self.ask()

    def _build_buttons(self) -> QHBoxLayout:
        self.page = button(self.tr("Open its page"), self._open_page, kind="quiet", icon_name="external", parent=self)
        self.shut = button(self.tr("Close"), self.reject, parent=self)
        words = self.tr("Train with it") if self._folder else self.tr("Download")
        icon = "train" if self._folder else "download"
        self.download = button(words, self._go_on, kind="primary", icon_name=icon, parent=self)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addWidget(self.page)
        row.addStretch(1)
        row.addWidget(self.shut)
        row.addWidget(self.download)
        return row

    def done(self, result: int) -> None:
        """What is still asked for is of no use any more."""
        for task in self._tasks:
            task.cancel()
        super().done(result)

    # Asking

    def ask(self) -> None:
        """Ask the hub what the model is."""
        self._put(None)
        self.plan = None
        self._known = False
        self.facts.setText(self.tr("Asking the hub…"))
        self.facts.show()
        for each in (self.room, self.card, self._card_head):
            each.hide()
        self._rest.show()
        self.page.setEnabled(False)
        self.download.setEnabled(self._folder is not None)
        self._conduct(FACTS, self._take_facts, self._refuse)

    def _conduct(
        self, kind: Kind, done: Callable[[object], object], failed: Callable[[TunesmithError], object]
    ) -> None:
        task = OperationTask(kind, HubSpec(self.id), self)
        self._tasks.append(task)
        task.succeeded.connect(done)
        task.failed.connect(failed)
        task.ended.connect(lambda _outcome: self._tasks.remove(task))
        task.start()

    def _take_facts(self, answer: object) -> None:
        assert isinstance(answer, dict)
        plan = Download(HubModel.from_dict(answer), self.id)
        model = plan.model
        self._known = True
        self._show_link(model.page)
        self.facts.setText(
            parts_text(
                parameters_text(model.num_parameters) if model.num_parameters else "",
                license_text(model.licence),
                context_text(model.context_length),
                template_text(model.has_chat_template),
            )
        )
        try:
            plan.check_owner()
            plan.total_bytes  # noqa: B018 - a repository without weights says so here
        except TunesmithError as error:
            self._refuse(error)
            return
        self.plan = plan
        if model.gated:
            self._tell_gated()
        Job.start(self, lambda: (plan.done_bytes(), free_bytes()), self._take_room, self._refuse)
        self._conduct(CARD, self._take_card, lambda _error: None)

    def _take_room(self, found: tuple[int, int]) -> None:
        assert self.plan is not None
        done_bytes, free = found
        missing = self.plan.total_bytes - done_bytes
        short = missing + SPARE_BYTES > free
        words = self.tr("%1 to download. %2 are free.")
        if short:
            words = self.tr("Not enough room: %1 to download, but only %2 are free.")
        self.room.setText(fill(words, size(missing), size(free)))
        self.room.set_tone("error" if short else "text")
        if self._folder:
            self.room.setText(self.tr("It is on this computer."))
        self.room.show()
        self.download.setEnabled(bool(self._folder) or not short)
        if self.download.isEnabled():
            self.download.setDefault(True)
            self.download.setFocus(Qt.FocusReason.OtherFocusReason)

    def _take_card(self, answer: object) -> None:
        text = _HEADER.sub("", visible(str(answer))).strip()
        if text:
            self.card.setPlainText(text)
            for each in (self.card, self._card_head):
                each.show()
            self._rest.hide()

    # What stands in the way

    def _tell_gated(self) -> None:
        words = self.tr(
            "Accept the license on the model's page with your account, then enter an access token of that account."
        )
        banner = Banner("neutral", self.tr("Access on request"), words, actions=self._access_actions(), parent=self)
        self._put(banner)

    def _access_actions(self) -> tuple[Action, ...]:
        return ((self.tr("Open the license page"), self._open_page), (self.tr("Enter a token…"), self.ask_token))

    def _refuse(self, error: TunesmithError) -> None:
        self._show_link(error.link or self._link)
        actions: tuple[Action, ...] = ((self.tr("Try again"), self.ask),)
        if error.code == "environment-missing":
            actions = ((self.tr("Set up"), self.setup_asked.emit),)
        elif error.code == "hub-gated-401":
            actions = self._access_actions()
        elif error.code in ("hub-not-found", "hub-token-refused"):
            actions = ((self.tr("Enter a token…"), self.ask_token),)
        elif error.code == "hub-owner-changed":
            other = str(error.message.values["id"]) if hasattr(error.message, "values") else ""
            actions = ((fill(self.tr("Look at %1"), other), lambda: self.other_asked.emit(other)),)
        elif error.code in ("hub-no-model", "model-pickle-refused"):
            actions = ()
        self.facts.setVisible(self._known)
        self._put(error_banner(error, actions=actions, dismissable=False, parent=self))

    def _put(self, banner: Banner | None) -> None:
        if self._problem is not None:
            self._problem.hide()
            self._problem.deleteLater()
        self._problem = banner
        if banner is not None:
            self._news.addWidget(banner)

    def ask_token(self) -> None:
        """Ask for an access token, then ask the hub again."""
        dialog = TokenDialog(self)
        dialog.saved.connect(self.ask)
        dialog.open()

    def _show_link(self, link: str) -> None:
        self._link = link
        self.page.setEnabled(link.startswith(("https://", "http://")))

    def _open_page(self) -> None:
        if self.page.isEnabled():
            QDesktopServices.openUrl(QUrl(self._link))

    def _go_on(self) -> None:
        if self._folder:
            self.train_asked.emit(self._folder)
        else:
            self.download_asked.emit(self.id)
        self.accept()
