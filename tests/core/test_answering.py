"""Whether a model fits into a GPU beside a run is computed from what both need, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import answering, devices, paths
from tunesmith_core.answering import check_room, check_writes, needed_bytes
from tunesmith_core.devices import Device, answering_on
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.run_queue import device_lock, holder_of, note_holder
from tunesmith_core.spec import RunSpec

GIB = 1 << 30
CPU = Hardware("cpu", "CPU", 64 * GIB, 48 * GIB, 64 * GIB, 48 * GIB)


def gpu(free_bytes: int) -> Hardware:
    return Hardware("cuda", "GPU", 24 * GIB, free_bytes, 64 * GIB, 48 * GIB, 0, (8, 6))


@pytest.fixture
def card(model_folder: Path) -> ModelCard:
    return read_model_card(model_folder)


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    monkeypatch.setattr(devices, "nvidia_present", lambda: True)
    return answering_on(RunSpec(), "auto")


def has(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(answering, "detect_hardware", lambda: [gpu(free_bytes), CPU])


def test_what_is_needed_follows_format_and_device(card: ModelCard, spec: RunSpec) -> None:
    in_16_bits = needed_bytes(spec, card, gpu(GIB))
    assert needed_bytes(spec, card, CPU) < in_16_bits, "no CUDA libraries"
    spec.quantization.kind = "nf4"
    assert needed_bytes(spec, card, gpu(GIB)) < in_16_bits
    spec.quantization.kind = "none"
    spec.data.context_length = 8192
    assert needed_bytes(spec, card, gpu(GIB)) > in_16_bits


def test_a_free_gpu_and_a_cpu_take_it(card: ModelCard, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, 20 * GIB)
    check_room(spec, card)
    has(monkeypatch, 0)
    check_room(answering_on(spec, "cpu"), card)
    monkeypatch.setattr(answering, "detect_hardware", lambda: [CPU])
    check_room(spec, card)


def test_a_full_gpu_is_told_with_the_choice(card: ModelCard, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, GIB // 2)
    with pytest.raises(TunesmithError) as refusal:
        check_room(spec, card)
    assert refusal.value.code == "gpu-busy"
    assert "0.50 GiB are free" in refusal.value.message
    assert "answer on the CPU" in refusal.value.hint


@pytest.mark.usefixtures("home")
def test_what_a_run_has_planned_and_not_taken_is_left_to_it(
    card: ModelCard, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, 4 * GIB)
    run = make_tiny_run(paths.runs_dir() / "busy-01")
    journal = JournalWriter(run.journal_path)
    journal.write("hello", protocol="1.0")
    journal.write("setup", planned_bytes=10 * GIB)
    with device_lock(Device(0)):
        note_holder(Device(0), run)
        assert holder_of(Device(0)) == run.id
        with pytest.raises(TunesmithError) as refusal:
            check_room(spec, card)
        assert refusal.value.code == "gpu-busy"
        assert "Beside the run busy-01, 0.00 GiB are left" in refusal.value.message
        # Once it has taken what it planned, the rest is free.
        journal.write("gpu", reserved_bytes=10 * GIB)
        check_room(spec, card)
    journal.close()
    assert holder_of(Device(0)) == ""


def test_only_a_model_that_writes_is_chatted_with() -> None:
    spec = RunSpec()
    check_writes(spec)
    spec.objective.kind = "reward"
    with pytest.raises(TunesmithError, match="nothing to chat with"):
        check_writes(spec)
