"""The diagnosis in the window: a pasted or dropped log, and the banner of a failed run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QDialog, QFileDialog, QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.environment.test_page import press, words
from tests.gui.fake_runs import FakeRuns
from tests.gui.layout_checks import clipped, unnamed
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import EnvironmentProblem, RunFailure
from tunesmith_core.explain.failure import explained
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.dashboard.banners import make_banner
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.environment.choose_profile import ChooseProfileDialog
from tunesmith_gui.environment.diagnosis_view import confidence_words
from tunesmith_gui.environment.explain_log import ExplainLogDialog
from tunesmith_gui.models.run_spec import AtSetting, duplicate_spec, fixed_spec
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.confirm import ConfirmDialog

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 6.00 GiB in total."
DISK = "OSError: [Errno 28] No space left on device: '/data/runs/x/checkpoint'"


@pytest.fixture
def dialog(window: MainWindow, qtbot: QtBot) -> Iterator[ExplainLogDialog]:
    asked: list[str] = []
    result = ExplainLogDialog(asked.append, window)
    result.asked = asked  # type: ignore[attr-defined]
    result.show()
    qtbot.waitExposed(result)
    yield result
    result.close()
    settle()


@pytest.fixture(autouse=True)
def runs(context: Context) -> FakeRuns:
    fake = FakeRuns()
    context.__dict__["runs"] = fake
    return fake


def test_a_pasted_log_is_named_with_evidence_fix_and_buttons(dialog: ExplainLogDialog, qtbot: QtBot) -> None:
    assert "The answer appears here." in words(dialog)
    dialog.text.setPlainText(f"step 12\n{DISK}\n")
    qtbot.waitUntil(lambda: "disk-full" in words(dialog), timeout=15_000)
    text = words(dialog.answer)
    assert CODES["disk-full"].title in text
    assert DISK in text
    settle()
    assert unnamed(dialog) == []
    assert clipped(dialog) == []
    press(dialog.answer, "Free disk space")
    assert dialog.asked == ["free-disk"]  # type: ignore[attr-defined]
    dialog.text.setPlainText("all is well")
    qtbot.waitUntil(lambda: "Cause not recognized." in words(dialog), timeout=15_000)
    dialog.text.clear()
    qtbot.waitUntil(lambda: "The answer appears here." in words(dialog), timeout=15_000)


def test_a_file_is_dropped_or_opened_whatever_its_encoding(
    dialog: ExplainLogDialog, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(OUT_OF_MEMORY.encode("utf-16"))
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    assert not dialog.text.canInsertFromMimeData(data), "a file is opened, not pasted as an address"
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPoint(5, 5), Qt.DropAction.CopyAction, data, buttons, keys)
    dialog.dragEnterEvent(enter)
    assert enter.isAccepted()
    dialog.dropEvent(QDropEvent(QPoint(5, 5), Qt.DropAction.CopyAction, data, buttons, keys))
    qtbot.waitUntil(lambda: "cuda-oom" in words(dialog), timeout=15_000)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_words: (str(tmp_path / "gone.txt"), ""))
    press(dialog, "Open file…")
    qtbot.waitUntil(lambda: "gone.txt" in words(dialog.answer), timeout=15_000)


def test_dialogs_stay_within_the_window_at_double_text_size(window: MainWindow, qtbot: QtBot) -> None:
    window.resize(1024, 640)
    theme().set_appearance(Scheme.LIGHT, 2.0)
    dialogs: list[QDialog] = []
    try:
        explaining = ExplainLogDialog(lambda _name: None, window)
        explaining.text.setPlainText(DISK)
        long = "Files of the training environment: Repair 3 files\n" * 3
        dialogs += [
            explaining,
            ChooseProfileDialog("cu124", "RTX 3060, driver 560: CUDA 12.4", "", window),
            ConfirmDialog("Repair the environment?", long, long, "Repair", window),
        ]
        for dialog in dialogs:
            dialog.show()
        qtbot.waitUntil(lambda: "disk-full" in words(explaining), timeout=15_000)
        for dialog in dialogs:
            settle()
            assert dialog.width() <= window.width()
            assert dialog.height() <= window.height()
            assert clipped(dialog) == []
            assert unnamed(dialog) == []
    finally:
        theme().set_appearance(Scheme.LIGHT, 1.0)
        for dialog in dialogs:
            dialog.close()
            dialog.deleteLater()


def test_how_sure_an_answer_is_has_three_words() -> None:
    assert len({confidence_words(each) for each in ("high", "medium", "low")}) == 3


def test_a_failed_run_shows_cause_evidence_and_buttons(window: MainWindow, qtbot: QtBot) -> None:
    model = DashboardModel()
    model.status.state = RunState.FAILED
    failure = explained(RunFailure("engine-crashed", "The engine ended with exit code 1."), DISK)
    failure.actions += ("choose-chat-template", "use-cpu", "of-a-newer-version")
    model.status.error = failure.to_dict()
    asked: list[str] = []
    banner = make_banner(model, RunSpec(), Path("/r"), None, asked.append, window)
    assert banner is not None
    qtbot.addWidget(banner)
    text = "\n".join(each.text() for each in banner.findChildren(QPushButton))
    assert "Free disk space" in text
    assert "Choose a chat template" not in text, "no button for what the program can't do"
    assert banner.accessibleName() == CODES["disk-full"].title
    assert DISK in banner.accessibleDescription()
    assert failure.hint in banner.accessibleDescription()
    next(each for each in banner.buttons if each.text() == "Free disk space").click()
    assert asked == ["fix:free-disk"]
    banner.hide()
    model.status.error = EnvironmentProblem("torch-cpu-build", "No CUDA.", actions=["repair-environment"]).to_dict()
    other = make_banner(model, RunSpec(), Path("/r"), None, asked.append, window)
    assert other is not None
    qtbot.addWidget(other)
    words_of = [each.text() for each in other.buttons]
    assert words_of[:2] == ["Repair the training environment", "Change and retry"]
    other.hide()
    model.status.error = EnvironmentProblem("driver-too-old", "Version 470.").to_dict()
    general = make_banner(model, RunSpec(), Path("/r"), None, asked.append, window)
    assert general is not None
    qtbot.addWidget(general)
    assert general.buttons[0].text() == "Open NVIDIA's driver page", (
        "what helps against the code, where nothing is named"
    )


def failed_run() -> Run:
    spec = RunSpec(name="broken")
    spec.model.path, spec.data.sources[0].path = "/models/Tiny", "/data/chats.jsonl"
    run = create_run(spec)
    events = Path(__file__).parents[2] / "data" / "events" / "oom.jsonl"
    run.journal_path.write_bytes(events.read_bytes())
    (run.path / "engine.log").write_text(OUT_OF_MEMORY, encoding="utf-8")
    return run


def test_the_page_of_a_failed_run_leads_to_the_fix(
    quiet: Any, context: Context, window: MainWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunesmith_gui.services.run_service import RunService

    del quiet
    service = RunService()
    context.__dict__["runs"] = service
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    run = failed_run()
    window.show_page("dashboard", run.id)
    page: Any = window.pages.currentWidget()
    qtbot.waitUntil(lambda: page.spec is not None, timeout=20_000)
    qtbot.waitUntil(
        lambda: page._banner is not None and "2.1 GiB were asked for" in words(page._banner), timeout=15_000
    )
    asked: list[tuple[str, object]] = []
    page.navigate.disconnect()
    page.navigate.connect(lambda key, argument: asked.append((key, argument)))
    for name in ("repair-environment", "open-driver-page", "set-proxy", "lower-learning-rate", "choose-target-modules"):
        page.ask(f"fix:{name}")
    assert [key for key, _argument in asked] == ["environment", "settings", "train", "train"]
    assert asked[0][1] == "repair"
    assert opened
    spec = asked[2][1]
    assert isinstance(spec, RunSpec)
    assert spec.optimizer.learning_rate < run.load_spec().optimizer.learning_rate
    assert asked[3][1] == AtSetting("adapter.target_modules", duplicate_spec(run.load_spec()))
    assert fixed_spec(spec, "use-cpu").hardware.device == "cpu"
    assert spec.hardware.kernels
    assert not fixed_spec(spec, "use-pytorch-kernels").hardware.kernels
    service.shutdown()
