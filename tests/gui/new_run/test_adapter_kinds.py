"""Kinds of adapters on the Train page: their own settings only, and what must be taken back stays in sight."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.spec import RunSpec
from tunesmith_gui.export.model import _left_out
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.preset_bar import summary


def test_only_settings_of_a_kind_are_shown(qtbot: QtBot, page: NewRunPage) -> None:
    with qtbot.waitSignal(page.settings_list.opened, timeout=20_000):
        page.settings_list.set_open(True)

    def shown() -> set[str]:
        return {path for path, row in page.settings_list.rows.items() if not row.isHidden()}

    assert {"adapter.rank_pattern", "adapter.layers", "optimizer.neftune_alpha"} <= shown()
    for kind in ("vera", "ia3", "lokr"):
        page.form.set_value("quantization.kind", "none")
        page.form.set_value("adapter.kind", kind)
        own = {path for path in shown() if path.startswith("adapter.")}
        assert own == {"adapter.kind", "adapter.target_modules", *(f"adapter.{each}" for each in KINDS[kind].settings)}
        assert "optimizer.lora_plus_ratio" not in shown()
        assert ("quantization.kind" in shown()) == KINDS[kind].takes_quantized
        page.form.set_value("adapter.kind", "lora")
        page.form.set_value("quantization.kind", "nf4")
        page.form.set_value("adapter.kind", kind)
        assert "quantization.kind" in shown()
        assert ("quantization.kind" in page.form.problems()) != KINDS[kind].takes_quantized
        words = page.preset_bar.summary.text()
        assert words.startswith(KINDS[kind].title)
        assert ("rank" in words) == ("rank" in KINDS[kind].settings)


def test_entries_are_checked_while_they_are_typed(page: NewRunPage) -> None:
    page.form.set_text("adapter.rank_pattern", "q_proj = 32, layers.*.up_proj = 8")
    assert page.form.value("adapter.rank_pattern") == ["q_proj = 32", "layers.*.up_proj = 8"]
    page.form.set_text("adapter.rank_pattern", "q_proj: 32")
    assert "must be written as: module = rank" in page.form.problem("adapter.rank_pattern")
    page.form.set_text("adapter.layers", "0-7, 20")
    assert page.form.value("adapter.layers") == ["0-7", "20"]


def test_llama_cpp_is_offered_lora_alone() -> None:
    assert [len(_left_out(kind, "")) for kind in ("lora", "vera", "full")] == [0, 1, 2]
    assert _left_out("vera", "") == ("gguf-adapter",)
    assert summary(RunSpec(), None).startswith("LoRA")
