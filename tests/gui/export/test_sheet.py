"""The export sheet: two clicks start the right export, closing leaves it at work, and its end is told in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget

from tests.conftest import write_safetensors
from tests.gui.conftest import IdleTask, settle
from tests.gui.dashboard.conftest import open_dashboard as open_dashboard
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.run_folders import EVENTS, texts
from tests.run_adapter import make_adapter
from tunesmith_core import export_proof, exports, files, trash
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.export import EXPORT, GGUF_CHECK, ExportSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui import tr
from tunesmith_gui.export import form as form_module
from tunesmith_gui.export import model
from tunesmith_gui.export.service import Export, ExportService
from tunesmith_gui.export.sheet import ExportSheet
from tunesmith_gui.runs.page import RunsPage
from tunesmith_gui.shell.main_window import MainWindow

PROOF = {"agreement": 0.98125, "num_positions": 160, "mean_kl": 0.0053, "format": "gguf-q8_0"}
ANSWER: dict[str, Any] = {
    "path": "/exports/a",
    "bytes": 3 << 20,
    "existed": False,
    "licence": "apache-2.0",
    "proof": PROOF,
    "commands": ["llama-cli -m a.gguf", "ollama create a -f Modelfile"],
}


@pytest.fixture
def run(make_spec: Callable[..., RunSpec]) -> Run:
    """A finished run with two checkpoints on a model that is here."""
    run = create_run(make_spec("Support Bot"))
    run.journal_path.write_bytes((EVENTS / "happy.jsonl").read_bytes())
    make_adapter(run.adapter_path)
    for step in (10, 20):
        folder = run.checkpoints_path / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / exports.CHECKPOINT_WEIGHTS).write_bytes(b"x")
    return run


@pytest.fixture
def service(context: Any) -> ExportService:
    """Exports that begin nothing: a test says what happens to them."""
    context.__dict__["exports"] = ExportService(IdleTask)
    return context.exports  # type: ignore[no-any-return]


@pytest.fixture
def sheet(context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any) -> ExportSheet:
    """The sheet of the run, ready to start."""
    del service
    return opened(context, run, window, qtbot)


def opened(context: Any, run: Run, window: QWidget, qtbot: Any) -> ExportSheet:
    # A page that does not know the name yet has the run's id.
    sheet = ExportSheet(context, run, run.id, window)
    sheet.open()
    qtbot.waitUntil(lambda: sheet.outcome is not None or sheet.start.isEnabled() or sheet.cancel.isVisible())
    return sheet


def started(sheet: ExportSheet, service: ExportService) -> Export:
    sheet.start.click()
    (export,) = service.live()
    return export


def tell(export: Export, kind: str, **data: Any) -> None:
    event = Event(1, 0.0, kind, data)
    export.task.status.fold(event)
    export.task.happened.emit(event)


def end(export: Export, answer: dict[str, Any] | None = None, error: TunesmithError | None = None) -> None:
    state = OperationState.FAILED if error else OperationState.FINISHED
    export.task.ended.emit(Outcome(state, 0, answer, error))


def test_two_clicks_from_a_finished_run_start_a_gguf(
    service: ExportService, run: Run, open_dashboard: Any, qtbot: Any
) -> None:
    page = open_dashboard(run)
    qtbot.mouseClick(page.header.export, Qt.MouseButton.LeftButton)
    (sheet,) = page.window().findChildren(ExportSheet)
    qtbot.waitUntil(sheet.start.isEnabled)
    qtbot.mouseClick(sheet.start, Qt.MouseButton.LeftButton)
    (export,) = service.live()
    assert export.task.kind is EXPORT
    assert export.spec == ExportSpec(RunFolder(str(run.path)), 0, "gguf", "q8_0")
    assert sheet.cancel.isVisible()
    sheet.reject()


@pytest.mark.parametrize(
    ("kind", "formats"),
    [
        ("kimi_linear", ("merged", "adapter")),
        ("qwen2_vl", ("gguf", "merged", "adapter", "gguf-adapter")),
        ("", ("gguf", "merged", "adapter", "gguf-adapter")),
    ],
)
def test_a_type_without_gguf_begins_with_the_merged_model_and_says_why(
    context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any, kind: str, formats: tuple[str, ...]
) -> None:
    config = Path(run.load_spec().model.path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": kind}))
    sheet = opened(context, run, window, qtbot)
    form = sheet.form
    assert form is not None
    assert form.draft.facts.formats == formats
    is_told = "GGUF is missing here: Tunesmith can't write it for models of type kimi_linear." in texts(sheet)
    assert is_told == form.missing.isVisible() == ("gguf" not in formats)
    assert started(sheet, service).spec.format == formats[0]
    sheet.reject()


UNWRITTEN = TunesmithError("export-unsupported", "The tokenizer can't be exported as GGUF: it merges nothing.")


def test_a_model_whose_settings_allow_no_gguf_begins_with_the_merged_model_and_says_why(
    context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any
) -> None:
    sheet = opened(context, run, window, qtbot)
    form = sheet.form
    assert form is not None
    assert sheet.check is not None
    assert sheet.check.kind is GGUF_CHECK
    assert form.draft.format == "gguf"
    sheet.check.failed.emit(TunesmithError("disk-full", "There is no room."))
    assert (form.draft.format, form.missing.isVisible()) == ("gguf", False)
    sheet.check.failed.emit(UNWRITTEN)
    assert form.draft.format == "merged"
    assert str(UNWRITTEN.message) in texts(sheet)
    qtbot.waitUntil(sheet.start.isEnabled)
    sheet.reject()
    again = opened(context, run, window, qtbot)
    assert again.form is not None
    assert again.form.draft.format == "merged", "the answer is known"
    assert started(again, service).spec.format == "merged"
    again.reject()


def test_a_format_that_a_person_chose_stays(sheet: ExportSheet) -> None:
    form, check = sheet.form, sheet.check
    assert form is not None
    assert check is not None
    form.format.set_value("adapter")
    form.format.set_value("gguf")
    check.failed.emit(UNWRITTEN)
    assert form.draft.format == "gguf"
    assert form.missing.isVisible()
    sheet._ask()
    check.failed.emit(UNWRITTEN)


def test_shared_layers_have_no_merged_model_and_the_sheet_says_why(
    context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any
) -> None:
    config = Path(run.load_spec().model.path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "zamba2"}))
    name = "base_model.model.model.layers.{}.shared_transformer.self_attn.q_proj.lora_A.weight"
    write_safetensors(run.adapter_path / "adapter_model.safetensors", {name.format(each): [2, 4] for each in (2, 5)})
    sheet = opened(context, run, window, qtbot)
    assert sheet.form is not None
    assert sheet.form.draft.facts.formats == ("adapter",)
    assert "A merged model is missing here: in models of type zamba2 layers share weights" in texts(sheet)
    assert sheet.form.unmerged.isVisible()
    assert started(sheet, service).spec.format == "adapter"
    sheet.reject()


def test_a_base_model_in_the_trash_is_restored_and_plain_adapters_do_without(
    context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any
) -> None:
    base = Path(run.load_spec().model.path)
    trash.delete_folder(base)
    sheet = ExportSheet(context, run, run.id, window)
    sheet.open()
    qtbot.waitUntil(lambda: sheet.form is not None)
    assert sheet.form is not None
    assert not sheet.start.isEnabled()
    assert "was deleted and is in the trash" in sheet.room.text()
    assert sheet.form.restore.isVisible()
    sheet.form.format.set_value("adapter")
    qtbot.waitUntil(sheet.start.isEnabled)
    assert not sheet.form.restore.isVisible()
    sheet.form.saved.setCurrentIndex(1)
    assert not sheet.start.isEnabled()
    sheet.form.restore.click()
    qtbot.waitUntil(sheet.start.isEnabled)
    assert base.is_dir()
    assert started(sheet, service).spec.format == "gguf"
    sheet.reject()


def test_enter_starts_what_is_shown(sheet: ExportSheet, service: ExportService) -> None:
    assert sheet.focusWidget() is sheet.start
    QTest.keyClick(sheet, Qt.Key.Key_Return)
    assert len(service.live()) == 1


def test_what_is_chosen_is_exported(sheet: ExportSheet, run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    form = sheet.form
    assert form is not None
    assert [form.saved.itemText(place) for place in range(form.saved.count())] == [
        "Final, step 30 · evaluation loss 1.132 (best)",
        "Checkpoint of step 20 · evaluation loss 1.239",
        "Checkpoint of step 10 · evaluation loss 1.485",
    ]
    form.saved.setCurrentIndex(2)
    form.type.setCurrentIndex(model.TYPES.index("f16"))
    monkeypatch.setattr(form_module.QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    form.change.click()
    place = str(tmp_path / "support-bot-step-10-gguf-f16")
    assert form.draft.spec() == ExportSpec(RunFolder(str(run.path)), 10, "gguf", "f16", place)  # type: ignore[arg-type]
    assert form.folder.text() == place
    sheet.copy_command.click()
    words = f"tunesmith export {run.id} --checkpoint 10 --format gguf --type f16 --to "
    assert QGuiApplication.clipboard().text().startswith(words)
    form.format.set_value("merged")
    assert (form.draft.spec().format, form.draft.spec().type) == ("merged", "q8_0")
    assert form.draft.folder().name == "support-bot-step-10-merged"
    monkeypatch.setattr(form_module.QFileDialog, "getExistingDirectory", lambda *_: "")
    form.change.click()
    assert form.draft.parent == tmp_path


def test_every_number_format_has_its_size_and_one_is_recommended(sheet: ExportSheet) -> None:
    form = sheet.form
    assert form is not None
    words = [form.type.itemText(place) for place in range(form.type.count())]
    assert all(" B · " in each or "KiB · " in each for each in words)
    assert [each.split()[0] for each in words if "recommended" in each] == ["Q8_0"]
    assert form.type.currentText() == next(each for each in words if "recommended" in each)
    assert "About" in sheet.room.text()
    form.format.set_value("adapter")
    assert form.type.isHidden() or not form.type.isVisible()


def test_too_little_room_is_refused_before_the_start(
    sheet: ExportSheet, service: ExportService, tmp_path: Path, qtbot: Any, monkeypatch: Any
) -> None:
    form, roomy = sheet.form, tmp_path / "roomy"
    assert form is not None
    monkeypatch.setattr(files, "free_bytes", lambda path: 1 << 40 if path == roomy else 1 << 20)
    form.format.set_value("merged")
    qtbot.waitUntil(lambda: not sheet.start.isEnabled())
    assert sheet.room.text() == "Needs 64 MiB, but only 1 MiB are free. Choose another folder or a smaller format."
    QTest.keyClick(sheet, Qt.Key.Key_Return)
    sheet._start()
    assert service.live() == []
    form.set_parent_folder(roomy)
    qtbot.waitUntil(sheet.start.isEnabled)


def test_a_drive_that_can_not_be_read_is_told(sheet: ExportSheet, qtbot: Any, monkeypatch: Any) -> None:
    def fails(_path: Path) -> int:
        raise TunesmithError("permission-or-antivirus", "The drive is gone.")

    monkeypatch.setattr(files, "free_bytes", fails)
    assert sheet.form is not None
    sheet.form.format.set_value("merged")
    qtbot.waitUntil(lambda: not sheet.start.isEnabled())
    assert "The drive is gone." in texts(sheet)


@pytest.mark.parametrize(("ollama", "lm_studio"), [(True, True), (True, False), (False, True), (False, False)])
def test_other_programs_are_offered_where_they_are(
    ollama: bool, lm_studio: bool, context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    del service
    monkeypatch.setattr(model, "find_ollama", lambda: "/bin/ollama" if ollama else "")
    monkeypatch.setattr(model, "find_lm_studio", lambda: Path("/models") if lm_studio else None)
    form = opened(context, run, window, qtbot).form
    assert form is not None
    assert (form.ollama.isVisible(), form.lm_studio.isVisible()) == (ollama, lm_studio)
    if ollama and lm_studio:
        form.ollama.click()
        form.lm_studio.click()
        assert form.ollama.text() == "Also into Ollama, as support-bot:q8_0"
        assert (form.draft.spec().ollama, form.draft.spec().lm_studio) == ("support-bot:q8_0", True)
        form.format.set_value("adapter")
        assert not form.ollama.isVisible()
        assert (form.draft.spec().ollama, form.draft.spec().lm_studio) == ("", False)


def test_progress_is_told_in_words(sheet: ExportSheet, service: ExportService) -> None:
    export = started(sheet, service)
    assert "Starting" in texts(sheet)
    tell(export, "progress", name="converting", done_bytes=1, total_bytes=4)
    assert "Writing the file: 25%" in texts(sheet)
    tell(export, "phase", name="verifying")
    assert "Comparing with the trained model" in texts(sheet)
    tell(export, "phase", name="something new")
    assert "something new" in texts(sheet)


def test_a_verified_export_says_so_with_its_figures(sheet: ExportSheet, service: ExportService, qtbot: Any) -> None:
    export = started(sheet, service)
    end(export, ANSWER | {"existed": True, "ollama": "bot:q8_0", "lm_studio": "/lm/a.gguf"})
    shown = texts(sheet)
    assert "Verified: only rounding differs\nSame next token at 98.1% of 160 positions, 0.0053 nats apart." in shown
    assert "Nats tell how far apart" in shown
    told = ("3 MiB in /exports/a", "exported before", "ollama run bot:q8_0", "In LM Studio: /lm/a.gguf", "apache-2.0")
    assert all(words in shown for words in told)
    buttons = {each.text(): each for each in sheet.findChildren(QPushButton)}
    with qtbot.waitSignal(sheet.notify) as said:
        buttons["Copy command for Ollama"].click()
    assert said.args == ["ok", "Copied"]
    assert QGuiApplication.clipboard().text() == "ollama create a -f Modelfile"
    assert "Copy command for llama.cpp" in buttons
    with qtbot.waitSignal(sheet.folder_asked) as asked:
        buttons["Open folder"].click()
    assert asked.args == [Path("/exports/a")]
    sheet.copy_command.click()
    assert QGuiApplication.clipboard().text().endswith("--format gguf")
    sheet.again.click()
    qtbot.waitUntil(sheet.start.isEnabled)


def test_what_rounding_costs_is_not_called_equal() -> None:
    said = model.ending(ANSWER | {"proof": PROOF | {"mean_kl": 0.086}})
    assert (said.tone, said.title) == ("ok", "Verified: only rounding differs")
    assert said.text.endswith("0.086 nats apart. That is what rounding to fewer bits costs.")


def test_stretched_positions_are_not_called_rounding() -> None:
    proof = PROOF | {"mean_kl": 0.086, "causes": ["positions"], "rounding": {"mean_kl": 0.0842}}
    said = model.ending(ANSWER | {"proof": proof})
    assert said.title == "Verified: only stretched positions differ"
    assert said.text.endswith("The trained model with positions stretched as in llama.cpp gives 0.084 nats.")


def test_what_rounding_alone_would_cost_stands_beside_it() -> None:
    said = model.ending(ANSWER | {"proof": PROOF | {"mean_kl": 0.086, "rounding": {"mean_kl": 0.0842}}})
    words = "0.086 nats apart. Rounding the trained model to this type, without converting it, gives 0.084 nats."
    assert words in said.text


def test_figures_too_small_to_matter_are_no_long_numbers() -> None:
    said = model.ending(ANSWER | {"proof": PROOF | {"mean_kl": 1e-9, "agreement": 1.0}})
    assert (said.title, said.tone) == ("Verified equal", "ok")
    assert said.text.endswith("less than 0.0001 nats apart.")


def test_answers_that_change_are_a_warning(sheet: ExportSheet, service: ExportService) -> None:
    export = started(sheet, service)
    changed = {**PROOF, "mean_kl": 0.54}
    tell(export, "warning", code="export-differs", message=export_proof.changed_answers(changed))
    tell(export, "warning", code="chat-template-unclear", message="No Modelfile.")
    end(export, ANSWER | {"proof": changed})
    shown = texts(sheet)
    assert "Exported, but the answers change" in shown
    assert shown.count("A larger type, such as q8_0") == 1
    assert "No Modelfile." in shown
    assert "98% of the next tokens" in shown


def test_what_was_not_compared_is_not_called_equal(sheet: ExportSheet, service: ExportService) -> None:
    export = started(sheet, service)
    tell(export, "warning", code="memory-full", message="Too little memory.")
    end(export, ANSWER | {"proof": None, "licence": "unknown"})
    shown = texts(sheet)
    assert "Exported, but not verified" in shown
    assert "Too little memory." in shown
    assert "Verified equal" not in shown
    assert "license" not in shown


def test_a_refused_export_says_why_and_can_be_tried_again(
    sheet: ExportSheet, service: ExportService, qtbot: Any
) -> None:
    end(started(sheet, service), error=TunesmithError("export-differs", "Other tokens."))
    shown = texts(sheet)
    assert "The export is not equal to the trained model" in shown
    assert "Other tokens." in shown
    assert "Export in another format" in shown
    sheet.again.click()
    qtbot.waitUntil(sheet.start.isEnabled)
    assert len({started(sheet, service)}) == 1


def test_a_format_that_was_refused_is_not_proposed_again(
    sheet: ExportSheet, service: ExportService, context: Any, run: Run, window: MainWindow, qtbot: Any
) -> None:
    hint = "Export the merged model instead."
    end(started(sheet, service), error=TunesmithError("export-unsupported", "Not as GGUF.", hint=hint))
    (merged,) = (each for each in sheet.findChildren(QPushButton) if each.text() == "Export the merged model…")
    merged.click()
    qtbot.waitUntil(sheet.start.isEnabled)
    assert sheet.form is not None
    assert (sheet.form.format.value, sheet.form.draft.format) == ("merged", "merged")
    sheet.reject()
    again = opened(context, run, window, qtbot).form
    assert again is not None
    assert (again.draft.format, again.draft.facts.formats[0]) == ("merged", "gguf")
    assert service.refused("/another/run") == frozenset()


def test_closing_the_sheet_leaves_the_export_at_work(
    sheet: ExportSheet, service: ExportService, context: Any, run: Run, window: MainWindow, qtbot: Any
) -> None:
    export = started(sheet, service)
    tell(export, "progress", name="converting", done_bytes=1, total_bytes=2)
    QTest.keyClick(sheet, Qt.Key.Key_Escape)
    settle()
    assert window.findChildren(ExportSheet) == []
    assert service.live() == [export]
    assert not export.task.cancelled
    assert export.task.words == "Exporting Support Bot"
    again = opened(context, run, window, qtbot)
    assert "Writing the file: 50%" in texts(again)
    again.shut.click()
    end(export, ANSWER)
    assert window.toast.label.text() == "Exported Support Bot as gguf-q8_0: Verified: only rounding differs"
    seen = opened(context, run, window, qtbot)
    assert "Verified: only rounding differs" in texts(seen)
    seen.reject()
    assert service.of(str(run.path)) is None


def test_a_failure_that_nobody_watches_is_told(
    sheet: ExportSheet, service: ExportService, window: MainWindow
) -> None:
    export = started(sheet, service)
    sheet.reject()
    end(export, error=TunesmithError("disk-full", "Full."))
    assert window.toast.label.text().startswith("Export of Support Bot as gguf-q8_0: ")


def test_what_a_sheet_shows_is_not_told_twice(
    sheet: ExportSheet, service: ExportService, window: MainWindow
) -> None:
    end(started(sheet, service), ANSWER)
    assert "Support Bot" not in window.toast.label.text()


def test_cancel_leads_back_to_the_choices(
    sheet: ExportSheet, service: ExportService, run: Run, qtbot: Any
) -> None:
    export = started(sheet, service)
    sheet.cancel.click()
    assert export.task.cancelled
    qtbot.waitUntil(sheet.start.isEnabled)
    assert service.of(str(run.path)) is None
    started(sheet, service)
    assert sheet.cancel.isEnabled()


def test_a_run_that_can_not_be_exported_says_why(
    context: Any, service: ExportService, run: Run, model_folder: Path, window: MainWindow, qtbot: Any
) -> None:
    del service
    (model_folder / "model.safetensors").unlink()
    sheet = ExportSheet(context, run, run.id, window)
    sheet.open()
    qtbot.waitUntil(lambda: sheet.form is not None)
    assert sheet.form is not None
    assert str(model_folder) in sheet.room.text()
    assert not sheet.start.isEnabled()
    assert not sheet.form.restore.isVisible(), "it is not in the trash"
    sheet.reject()


def test_a_run_with_nothing_says_so(
    context: Any, service: ExportService, make_spec: Any, window: MainWindow, qtbot: Any
) -> None:
    del service
    sheet = opened(context, create_run(make_spec("empty")), window, qtbot)
    assert "The run has not saved a model yet" in texts(sheet)
    sheet.reject()


def test_a_hub_model_has_no_size_but_can_be_exported(
    context: Any, service: ExportService, make_spec: Any, run: Run, window: MainWindow, qtbot: Any
) -> None:
    spec = make_spec("Support Bot")
    spec.model.path = "org/name"
    files.atomic_write_json(run.spec_path, spec.to_dict())
    sheet = opened(context, run, window, qtbot)
    assert "free on this drive" in sheet.room.text()
    assert "About" not in sheet.room.text()
    started(sheet, service)


def test_a_live_run_is_not_offered_for_export(service: ExportService, run: Run, open_dashboard: Any) -> None:
    del service
    page = open_dashboard(run)
    assert page.header.export.isVisible()
    page.model.status.state = type(page.model.status.state).RUNNING
    page._repaint()
    assert not page.header.export.isVisible()


def test_the_list_of_runs_opens_the_sheet(context: Any, service: ExportService, run: Run, qtbot: Any) -> None:
    del service
    page = RunsPage(context)
    qtbot.addWidget(page)
    page.resize(1400, 800)
    page.show()
    page.on_shown()
    qtbot.waitUntil(lambda: page.proxy.rowCount() == 1 and page.card.take_out.isVisible())
    page.card.take_out.click()
    (sheet,) = page.window().findChildren(ExportSheet)
    qtbot.waitUntil(sheet.start.isEnabled)
    assert sheet.heading.text() == "Export “Support Bot”"
    assert sheet.form is not None
    assert sheet.form.draft.spec().run == str(run.path)
    sheet.reject()


def test_the_end_of_the_program_ends_exports(
    sheet: ExportSheet, service: ExportService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []
    monkeypatch.setattr(IdleTask, "abandon", lambda task: ended.append(task))
    export = started(sheet, service)
    service.shutdown()
    assert ended == [export.task]


@pytest.mark.parametrize("language", ["en", "zh_CN"])
@pytest.mark.parametrize("state", ["form", "progress", "end", "failed"])
def test_all_of_it_can_be_read_and_has_names(
    language: str, state: str, context: Any, service: ExportService, run: Run, window: MainWindow, qtbot: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(model, "find_ollama", lambda: "/bin/ollama")
    window.resize(1024, 640)
    tr.install_language(language)
    try:
        sheet = opened(context, run, window, qtbot)
        if state != "form":
            export = started(sheet, service)
        if state == "end":
            end(export, ANSWER)
        if state == "failed":
            end(export, error=TunesmithError("export-differs", "Other tokens."))
        settle()
        assert sheet.width() <= 1024
        assert sheet.height() <= 640
        assert (clipped(sheet), unnamed(sheet)) == ([], [])
        sheet.reject()
    finally:
        tr.install_language("en")
