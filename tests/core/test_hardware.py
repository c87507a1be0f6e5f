"""What the computer has: nvidia-smi's answers of every kind, and main memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tunesmith_core import hardware

GIB = 1024**3


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: str | Exception) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert command[0] == "nvidia-smi"
        assert options["timeout"] == hardware.NVIDIA_SMI_TIMEOUT_S
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0, answer, "")

    monkeypatch.setattr(hardware.subprocess, "run", run)


def test_gpus_come_first_and_the_cpu_last(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, "0, NVIDIA GeForce RTX 3060, 6144, 5500, 8.6\n1, NVIDIA H200, 143771, 140000, 9.0\n")
    first, second, cpu = hardware.detect_hardware()
    assert (first.device, first.name, first.gpu_index, first.compute_capability) == (
        "cuda",
        "NVIDIA GeForce RTX 3060",
        0,
        (8, 6),
    )
    assert (first.total_bytes, first.free_bytes) == (6 * GIB, 5500 * 1024**2)
    assert second.gpu_index == 1
    assert (cpu.device, cpu.gpu_index) == ("cpu", None)
    assert cpu.total_bytes == cpu.host_total_bytes == first.host_total_bytes


@pytest.mark.parametrize(
    "answer",
    [
        FileNotFoundError("nvidia-smi"),
        subprocess.TimeoutExpired("nvidia-smi", 5),
        subprocess.CalledProcessError(9, "nvidia-smi"),
        "",
        "0, GB10, [N/A], [N/A], 12.1\n",
        "No devices were found\n",
    ],
)
def test_without_a_gpu_that_answers_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch, answer: str | Exception) -> None:
    answer_with(monkeypatch, answer)
    assert [each.device for each in hardware.detect_hardware()] == ["cpu"]


@pytest.mark.skipif(sys.platform == "win32", reason="reads /proc")
def test_main_memory_is_the_systems_own_number() -> None:
    total, free = hardware.host_memory()
    assert 0 < free <= total
    assert total % 1024 == 0
