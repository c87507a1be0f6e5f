"""Where training starts: the list of adapters, what one decides, and what is said of one that doesn't fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.conftest import write_safetensors
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import fill_in, settle
from tunesmith_core.presets import PRESETS
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.models.run_spec import continued_spec
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.start_picker import HELD, START


def write_adapter(folder: Path, model: Path, rank: int = 3, width: int = 8) -> Path:
    """Write an adapter for the query projection of the first layer of a small model."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "base_model_name_or_path": str(model)}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    module = "base_model.model.model.layers.0.q_proj"
    shapes = {f"{module}.lora_A.weight": [rank, width], f"{module}.lora_B.weight": [4, rank]}
    write_safetensors(folder / "adapter_model.safetensors", shapes)
    return folder


@pytest.fixture
def earlier(page: NewRunPage, model: Path, data_file: Path) -> Run:
    """A run on the model that has made an adapter."""
    spec = RunSpec()
    spec.name, spec.model.path, spec.data.sources[0].path = "First", str(model), str(data_file)
    run = create_run(spec)
    write_adapter(run.adapter_path, model)
    page.start_picker.refresh()
    return run


def _choices(page: NewRunPage) -> list[str]:
    combo = page.start_picker.combo
    return [combo.itemText(index) for index in range(combo.count())]


def test_an_adapter_of_an_earlier_run_is_offered_and_decides(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, earlier: Run
) -> None:
    picker = page.start_picker
    assert picker.isHidden(), "without a model there is nothing to continue"
    fill_in(qtbot, page, model, data_file)
    qtbot.waitUntil(lambda: _choices(page) == ["The model as it is", "First"], timeout=5000)
    assert picker.isVisible()
    assert picker.combo.path == ""
    page.form.set_value("adapter.rank", 64)
    picker.combo.path_chosen.emit(str(earlier.adapter_path))
    qtbot.waitUntil(lambda: page.form.value("adapter.rank") == 3, timeout=5000)
    assert page.form.value("adapter.target_modules") == ["q_proj"]
    assert page.form.changed_paths() == [START], "what the adapter decides is no change of the person's"
    assert picker.words.text() == "Rank 3 and its other settings come from the adapter."
    settle()
    assert (clipped(page), unnamed(page)) == ([], [])
    with qtbot.waitSignal(page.settings_list.opened):
        page.settings_list.set_open(True)
    for path in HELD:
        row = page.settings_list.rows[path]
        assert not row.control.isEnabled()
        assert row.note.text() == "set by the adapter to start from"
    assert page.settings_list.rows["adapter.initial_values"].isHidden()
    page.form.choose_preset(next(name for name in PRESETS if name != page.form.preset))
    assert page.form.value("adapter.rank") == 3
    picker.combo.path_chosen.emit("")
    assert page.form.value("adapter.rank") == PRESETS[page.form.preset]["adapter.rank"]
    assert page.form.value("adapter.target_modules") == "all-linear"
    assert page.settings_list.rows["adapter.rank"].control.isEnabled()
    assert page.form.changed_paths() == []


def test_an_adapter_of_another_shape_is_named_and_goes_with_the_model(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, tmp_path: Path
) -> None:
    fill_in(qtbot, page, model, data_file)
    page.form.set_value(START, str(write_adapter(tmp_path / "other", model, width=9)))
    words = page.start_picker.words
    qtbot.waitUntil(lambda: "the adapter is for another base model" in words.text(), timeout=5000)
    page.form.set_value(START, str(tmp_path / "nothing"))
    qtbot.waitUntil(lambda: "adapter_config.json is missing" in words.text(), timeout=5000)
    page.form.set_value(START, str(write_adapter(tmp_path / "renamed", Path("org/Elsewhere"))))
    qtbot.waitUntil(lambda: "was trained on Elsewhere" in words.text(), timeout=5000)
    page.form.set_value("model.path", str(tmp_path))
    assert page.form.value(START) == ""
    page.form.set_value(START, "somewhere")
    page.form.choose_way("reward")
    assert page.form.value(START) == "", "heads continue none"
    assert page.start_picker.isHidden()


def test_a_folder_is_chosen(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_in(qtbot, page, model, data_file)
    folder = write_adapter(tmp_path / "mine", model)
    ask = "tunesmith_gui.new_run.start_picker.QFileDialog.getExistingDirectory"
    monkeypatch.setattr(ask, lambda *_: str(folder))
    page.start_picker.browse.click()
    qtbot.waitUntil(lambda: page.form.value("adapter.rank") == 3, timeout=5000)
    assert page.start_picker.combo.path == str(folder)


def test_a_finished_run_is_continued(qtbot: QtBot, page: NewRunPage, earlier: Run) -> None:
    page.on_shown(continued_spec(earlier.load_spec(), earlier.adapter_path))
    assert page.form.value(START) == str(earlier.adapter_path)
    assert page.form.value("adapter.rank") == 3
    qtbot.waitUntil(lambda: page.start_picker.combo.currentText() == "First", timeout=5000)
