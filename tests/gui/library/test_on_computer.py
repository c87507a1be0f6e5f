"""On this computer: what is said of each model, and what can be done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from tests.gui.conftest import settle
from tests.gui.fake_runs import training
from tests.gui.library.conftest import Shelves, shown
from tests.gui.library.driving import banners, downloaded, last, placed, press, shelf_of
from tests.gui.run_folders import texts
from tunesmith_core import model_library, paths
from tunesmith_core.errors import TunesmithError
from tunesmith_gui.library.model_row import ModelRow
from tunesmith_gui.library.page import LibraryPage
from tunesmith_gui.library.task_row import TaskRow
from tunesmith_gui.models.model_words import parameters_text
from tunesmith_gui.services.operation import operations
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.status_chip import StatusChip

Told = list[tuple[str, Any]]


@pytest.fixture
def told(page: LibraryPage) -> Told:
    """Where the page wants to go, and what it says."""
    result: Told = []
    page.navigate.connect(lambda *words: result.append(words))
    page.notify.connect(lambda *words: result.append(words))
    return result


def row_of(page: LibraryPage, name: str) -> ModelRow:
    return next(row for row in page.findChildren(ModelRow) if row.placed.model.name == name)


def choose(row: ModelRow, words: str) -> None:
    next(action for action in row.menu.actions() if action.text() == words).trigger()


def dialog(page: LibraryPage) -> ConfirmDialog:
    found = [each for each in QApplication.topLevelWidgets() if isinstance(each, ConfirmDialog) and each.isVisible()]
    return found[-1]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (500, "1 K"),
        (300_416, "300 K"),
        (999_600, "1 M"),
        (134_515_008, "135 M"),
        (999_400_000, "999 M"),
        (999_885_952, "1.0 B"),
        (4_022_000_000, "4.0 B"),
    ],
)
def test_a_number_of_parameters_is_said_as_people_say_it(count: int, words: str) -> None:
    assert parameters_text(count) == f"{words} parameters"


def test_the_models_say_what_they_take_up_together(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    shelves.shelf = shelf_of(placed("one"), placed("two"), placed("org/other", "huggingface"))
    shown(page, qtbot)
    assert "2 models take up 2.0 GiB on this computer." in texts(page.here)
    shelves.shelf = shelf_of()
    shown(page, qtbot)
    assert "take up" not in texts(page.here)


def test_a_model_says_what_it_is(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    runs = {f"r{number}": f"run {number}" for number in range(5)}
    shelves.shelf = shelf_of(placed("smol", runs=runs), placed("org/other", "huggingface"))
    shown(page, qtbot)
    row = row_of(page, "smol")
    said = texts(row)
    assert "135 M parameters" in said
    assert "1.0 GiB" in said
    assert "context of 8,192 tokens" in said
    assert "chat template found" in said
    assert "Used by run 0, run 1, run 2 and 2 more" in said
    assert [chip.text for chip in row.findChildren(StatusChip)] == ["QLoRA: Fits", "LoRA: Does not fit"]
    assert "Kept by the Hugging Face cache" in texts(row_of(page, "org/other"))
    assert not page.here.loading.isVisible()
    assert not page.here.empty.isVisible()


def test_what_can_not_be_trained_says_why(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    path = placed("broken").model.path / "model.safetensors"
    problem = TunesmithError("model-files-missing-or-corrupt", "{path}: it is cut short.", path=path)
    shelves.shelf = shelf_of(placed("broken", problem=problem), placed("cached", "huggingface", problem=problem))
    shown(page, qtbot)
    ours, other = row_of(page, "broken"), row_of(page, "cached")
    assert ours.problem.text().startswith("Can't be trained. model.safetensors: it is cut short.\n")
    assert "Download the model again" in ours.problem.text()
    assert not ours.note.isVisible()
    assert "Download" not in other.problem.text()
    assert other.note.text() == "Kept by the Hugging Face cache"


def test_without_models_the_page_leads_to_some(page: LibraryPage, qtbot: QtBot) -> None:
    assert page.here.loading.isVisible()
    shown(page, qtbot)
    assert page.here.empty.isVisible()
    # Runs may well have used models of other folders.
    assert "No models in the library yet" in texts(page.here.empty)
    assert page.here.empty.primary is not None
    imports = [each for each in page.findChildren(QPushButton) if each.isVisible() and "Import folder" in each.text()]
    assert imports == [page.here.import_folder], "the button over the empty page is enough"
    page.here.empty.primary.click()
    assert (page.tabs.value, page.more.isVisible(), page.here.isVisible()) == ("more", True, False)


def test_a_look_that_fails_is_told_and_can_be_repeated(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    shelves.error = TunesmithError("permission-or-antivirus", "The folder of models can't be read.")
    page.on_shown()
    qtbot.waitUntil(lambda: "can't be read" in banners(page))
    shelves.error, shelves.shelf = None, shelf_of(placed("smol"))
    press(page, "Try again")
    qtbot.waitUntil(lambda: len(page.findChildren(ModelRow)) == 1)
    settle()
    assert "can't be read" not in banners(page)


def test_a_row_stays_when_the_shelf_is_read_again(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    shelves.shelf = shelf_of(placed("a"), placed("c"))
    shown(page, qtbot)
    row = row_of(page, "a")
    row.main.setFocus()
    shelves.shelf = shelf_of(placed("a"), placed("b"), placed("c", runs={"r": "run"}))
    shown(page, qtbot)
    assert row_of(page, "a") is row
    assert page.window().focusWidget() is row.main
    tops = [row_of(page, name).y() for name in "abc"]
    assert tops == sorted(tops)
    assert "Used by run" in texts(row_of(page, "c"))


def test_what_can_be_done_depends_on_who_keeps_it(
    page: LibraryPage, shelves: Shelves, told: Told, qtbot: QtBot
) -> None:
    problem = TunesmithError("model-files-missing-or-corrupt", "broken/config.json: the file is missing.")
    shelves.shelf = shelf_of(
        downloaded("org/name"),
        placed("mine"),
        placed("broken", problem=problem),
        placed("pub/m.gguf", "lm-studio", is_gguf=True),
        placed("org/cached", "huggingface"),
    )
    shown(page, qtbot)
    offered = {
        row.placed.model.name: [each.text() for each in row.menu.actions()] for row in page.findChildren(ModelRow)
    }
    assert offered["org/name"] == ["Verify the files", "Show in the file manager", "Delete…"]
    assert offered["mine"] == offered["org/name"]
    assert row_of(page, "org/name").entries["verify"].isEnabled()
    verify = row_of(page, "mine").entries["verify"]
    assert not verify.isEnabled()
    assert "no hashes" in verify.toolTip()
    assert row_of(page, "mine").menu.toolTipsVisible()
    assert offered["pub/m.gguf"] == offered["org/cached"] == ["Show in the file manager"]
    assert not row_of(page, "broken").main.isEnabled()
    assert "the file is missing" in texts(row_of(page, "broken"))
    assert row_of(page, "pub/m.gguf").main.text() == "Import…"
    row_of(page, "org/cached").main.click()
    assert told == [("train", [Path("/models/org--cached")])]


def test_delete_names_the_runs_that_depend_on_it(
    page: LibraryPage, shelves: Shelves, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, offered = list[str](), list[tuple[str, str]]()
    page.offer.connect(lambda text, action, _act: offered.append((text, action)))
    monkeypatch.setattr(model_library, "remove", lambda model: removed.append(model.name))
    runs = {f"r{number}": f"run {number}" for number in range(7)}
    shelves.shelf = shelf_of(placed("smol", runs=runs), placed("unused"))
    shown(page, qtbot)
    choose(row_of(page, "smol"), "Delete…")
    assert "7 runs use it" in texts(dialog(page))
    assert dialog(page).cancel.isDefault()
    assert "run 0, run 1, run 2, run 3, run 4 and 2 more" in texts(dialog(page))
    dialog(page).reject()
    assert removed == []
    choose(row_of(page, "unused"), "Delete…")
    assert "No run uses it." in texts(dialog(page))
    shelves.shelf = shelf_of(placed("smol", runs=runs))
    dialog(page).accept()
    qtbot.waitUntil(lambda: len(page.findChildren(ModelRow)) == 1)
    settle()
    assert removed == ["unused"]
    assert offered == [("Moved to the trash. To restore it: Runs, Trash…", "Undo")]


def test_a_model_that_is_being_trained_is_not_deleted(
    page: LibraryPage, shelves: Shelves, told: Told, qtbot: QtBot
) -> None:
    run = training("support-01")
    page.context.runs.show(run)  # type: ignore[attr-defined]
    shelves.shelf = shelf_of(placed("smol", runs={run.id: run.name}))
    shown(page, qtbot)
    choose(row_of(page, "smol"), "Delete…")
    assert told == [("warn", "The run support-01 is training with it. Stop the run first.")]


@pytest.mark.parametrize(
    ("changed", "words"),
    [([], "org/name is what the hub has"), (["model.safetensors"], "Missing or changed: model.safetensors")],
)
def test_verify_tells_which_files_changed(
    changed: list[str], words: str, page: LibraryPage, shelves: Shelves, qtbot: QtBot
) -> None:
    shelves.shelf = shelf_of(downloaded("org/name"))
    shown(page, qtbot)
    choose(row_of(page, "org/name"), "Verify the files")
    task = last("verify-model")
    assert (task.begun, task.spec.path) == (True, str(Path("/models/org--name")))
    (row,) = page.findChildren(TaskRow)
    assert row.phase.text() == "Starting…", "a line that comes later would move the rows below"
    task.tell("progress", name="reading", done_bytes=25, total_bytes=100)
    assert (row.meter.share, row.phase.text()) == (0.25, "Reading")
    task.answer(changed)
    settle()
    assert words in banners(page)
    assert page.findChildren(TaskRow) == []


def test_an_import_outlives_its_page(
    page: LibraryPage, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = page.context
    first = LibraryPage(context)
    first.here.bring_folder(tmp_path / "my-model")
    task = last("import-model")
    monkeypatch.setattr(operations(), "live", [task])
    delete(first)
    task.tell("progress", name="copying", done_bytes=25, total_bytes=100)
    assert not task.cancelled
    again = LibraryPage(context)
    qtbot.addWidget(again)
    told: Told = []
    again.notify.connect(lambda *words: told.append(words))
    (row,) = again.findChildren(TaskRow)
    assert (row.words.text(), row.meter.share) == ("Importing my-model", 0.25)
    task.answer("/models/my-model")
    settle()
    assert told == [("ok", "my-model was imported.")]
    assert again.findChildren(TaskRow) == []


def test_a_folder_is_imported_and_canceled(
    page: LibraryPage, shelves: Shelves, told: Told, qtbot: QtBot, tmp_path: Path
) -> None:
    shown(page, qtbot)
    page.here.bring_folder(tmp_path / "my-model")
    page.findChildren(TaskRow)[0].cancel.click()
    settle()
    assert last("import-model").cancelled
    assert page.findChildren(TaskRow) == []
    page.here.bring_folder(tmp_path / "my-model")
    shelves.shelf = shelf_of(placed("my-model"))
    last("import-model").answer("/models/my-model")
    qtbot.waitUntil(lambda: bool(page.findChildren(ModelRow)))
    assert told == [("ok", "my-model was imported.")]
    page.here.bring_folder(tmp_path / "my-model")
    last("import-model").refuse("model-exists", "/models/my-model exists already.")
    qtbot.waitUntil(lambda: "exists already" in banners(page))
    page.here.bring_folder(tmp_path / "other")
    settle()
    assert "exists already" not in banners(page), "another try makes it old news"
    last("import-model").tell("phase", name="starting", done=0, total=0, unit="")
    assert page.findChildren(TaskRow)[0].phase.text() == "Starting"


def test_a_gguf_of_another_program_becomes_a_model_of_ours(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    shelves.shelf = shelf_of(
        placed("llama3:8b", "ollama", is_gguf=True), placed("pub/repo/m.gguf", "lm-studio", is_gguf=True)
    )
    shown(page, qtbot)
    for name, target in (("llama3:8b", "llama3-8b"), ("pub/repo/m.gguf", "pub--repo--m")):
        row_of(page, name).main.click()
        settle()
        spec = last("import-gguf").spec
        assert (spec.source, spec.target) == (
            str(row_of(page, name).placed.model.path),
            str(paths.models_dir() / target),
        )
    (paths.models_dir() / target).mkdir(parents=True)
    row_of(page, name).main.click()
    qtbot.waitUntil(lambda: "exists already" in banners(page))
