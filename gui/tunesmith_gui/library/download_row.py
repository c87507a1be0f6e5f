"""A model on its way from a hub: how far, how fast, and pause, continue or cancel."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from tunesmith_gui.models.model_words import progress_text
from tunesmith_gui.services.downloads import DownloadState, HubDownload
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.announcer import Announcer
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import error_words
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide

_WORDS_LETTERS = 32
OF_THE_TOKEN = frozenset({"hub-gated-401", "hub-token-refused"})
"""Errors that another access token may solve."""


class DownloadRow(Card):
    """Follows a download.

    Signals:
        asked: (HubDownload, str) pause, continue, cancel, or look: at the model, for its license and the token.
    """

    asked = Signal(object, str)

    def __init__(self, download: HubDownload, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.download = download
        self.setAccessibleName(download.id)
        self._announcer = Announcer(self)
        self._said = download.state
        words = QWidget(self)
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        name = f"{download.id} @ {download.revision}" if download.revision else download.id
        column.addWidget(ElidedLabel(name, role="strong", parent=words))
        self.words = SafeLabel(tone="muted", wrap=True, parent=words)
        column.addWidget(self.words)
        self.pause = self._button("pause", self.tr("Pause"), self.tr("Pause %1"), "pause")
        self.resume = self._button("continue", self.tr("Continue"), self.tr("Continue %1"), "resume")
        self.look = self._button("look", self.tr("Get access…"), self.tr("Get access to %1"), "")
        self.cancel = self._button("cancel", self.tr("Cancel"), self.tr("Cancel %1"), "")
        self._buttons = FlowRow([self.pause, self.look, self.resume, self.cancel], self)
        self.body.addWidget(SideBySide(words, self._buttons, first_letters=_WORDS_LETTERS, parent=self))
        self.meter = Meter(fill(self.tr("Progress of %1"), download.id), parent=self)
        self.body.addWidget(self.meter)
        download.changed.connect(self._show)
        self._show()

    def _button(self, action: str, words: str, named: str, icon_name: str) -> QPushButton:
        result = button(words, lambda: self.asked.emit(self.download, action), icon_name=icon_name or None, parent=self)
        result.setAccessibleName(fill(named, self.download.id))
        return result

    def _show(self) -> None:
        download = self.download
        shown = {
            DownloadState.GOING: [self.pause, self.cancel],
            DownloadState.PAUSED: [self.resume, self.cancel],
            DownloadState.FAILED: [self.look if self._needs_access() else self.resume, self.cancel],
        }.get(download.state, [])
        self._buttons.show_only(shown)
        share = download.done_bytes / download.total_bytes if download.total_bytes else 0.0
        tone = {DownloadState.FAILED: "error", DownloadState.PAUSED: "warn"}.get(download.state, "accent")
        self.meter.set_share(share, tone)
        self.words.setText(self._words())
        self.words.set_tone("error" if download.state is DownloadState.FAILED else "muted")
        if download.state is not self._said:
            self._said = download.state
            self._announcer.say(f"{download.id}: {self._words()}")

    def _needs_access(self) -> bool:
        return self.download.error is not None and self.download.error.code in OF_THE_TOKEN

    def _words(self) -> str:
        download = self.download
        far = progress_text(
            download.done_bytes, download.total_bytes, download.bytes_per_s, download.remaining_s
        )
        match download.state:
            case DownloadState.FAILED if download.error is not None:
                return error_words(download.error)
            case DownloadState.PAUSED:
                return fill(self.tr("Paused at %1"), far) if far else self.tr("Paused")
            case DownloadState.STOPPING:
                return self.tr("Stopping…")
            case DownloadState.ELSEWHERE:
                return self.tr("Another window or command is downloading it.")
        if download.waits is not None:
            return fill(self.tr("Waiting: %1"), core_text(download.waits.title))
        return far or self.tr("Asking the hub…")
