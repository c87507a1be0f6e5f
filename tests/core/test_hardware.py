"""What the computer has: GPUs by the driver or else by nvidia-smi, and main memory."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from tunesmith_core import hardware, nvidia_smi, nvml
from tunesmith_core.machine import Gpu
from tunesmith_core.nvml import Reading

GIB = 1024**3
RTX_3060 = Gpu(index=0, name="RTX 3060", compute_capability=(8, 6), total_bytes=6 * GIB, free_bytes=5 * GIB)
H200 = Gpu(index=1, name="H200", compute_capability=(9, 0), total_bytes=140 * GIB)


def answer_with(monkeypatch: pytest.MonkeyPatch, *, library: Reading | None, program: Reading | None) -> None:
    monkeypatch.setattr(nvml, "read", lambda: library)
    monkeypatch.setattr(nvidia_smi, "read", lambda _: program)


def test_gpus_come_first_and_the_cpu_last(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, library=Reading(gpus=(RTX_3060, H200)), program=None)
    first, second, cpu = hardware.detect_hardware()
    assert (first.device, first.name, first.gpu_index, first.compute_capability) == ("cuda", "RTX 3060", 0, (8, 6))
    assert (first.total_bytes, first.free_bytes) == (6 * GIB, 5 * GIB)
    assert (second.gpu_index, second.free_bytes) == (1, 0)
    assert (cpu.device, cpu.gpu_index) == ("cpu", None)
    assert cpu.total_bytes == cpu.host_total_bytes == first.host_total_bytes


def test_the_processor_is_named_by_windows_or_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, library=Reading(gpus=()), program=None)
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "Intel64 Family 6")
    assert hardware.detect_hardware()[-1].name == "Intel64 Family 6"
    monkeypatch.delenv("PROCESSOR_IDENTIFIER")
    assert hardware.detect_hardware()[-1].name == platform.machine()


@pytest.mark.skipif(sys.platform == "win32", reason="the file is Linux's")
def test_memory_is_read_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal:       24586 kB\nMemFree: 3 kB\nMemAvailable:    4097 kB\nHugePages_Total: 0\n"
    )
    monkeypatch.setattr(hardware, "Path", lambda _: tmp_path / "meminfo")
    assert hardware.host_memory() == (24586 * 1024, 4097 * 1024)


@pytest.mark.parametrize("library", [None, Reading(problem="Driver Not Loaded")])
def test_nvidia_smi_is_asked_where_the_library_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, library: Reading | None
) -> None:
    answer_with(monkeypatch, library=library, program=Reading(gpus=(RTX_3060,)))
    assert [each.device for each in hardware.detect_hardware()] == ["cuda", "cpu"]


def test_a_library_that_fails_or_hangs_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, library=None, program=Reading(problem="no driver"))

    def fail() -> Reading:
        raise OSError("crashed")

    monkeypatch.setattr(nvml, "read", fail)
    assert hardware.nvidia_reading() == Reading(problem="no driver")


@pytest.mark.parametrize(
    "program",
    [
        None,
        Reading(problem="couldn't communicate"),
        Reading(gpus=()),
        Reading(gpus=(Gpu(index=0, name="GB10", compute_capability=(12, 1)),)),
        Reading(gpus=(Gpu(index=0, name="GTX 1080", total_bytes=8 * GIB),)),
    ],
)
def test_without_a_gpu_that_answers_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch, program: Reading | None) -> None:
    answer_with(monkeypatch, library=None, program=program)
    assert [each.device for each in hardware.detect_hardware()] == ["cpu"]


def test_the_real_nvidia_smi_is_run_with_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], float]] = []

    def run(command: list[str], timeout_s: float) -> None:
        asked.append((command, timeout_s))

    monkeypatch.setattr(nvml, "read", lambda: None)
    monkeypatch.setattr(hardware, "run", run)
    assert hardware.nvidia_reading(2.0) is None
    assert asked[0][1] == 2.0


@pytest.mark.skipif(sys.platform == "win32", reason="reads /proc")
def test_main_memory_is_the_systems_own_number() -> None:
    total, free = hardware.host_memory()
    assert 0 < free <= total
    assert total % 1024 == 0
