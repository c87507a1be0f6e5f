"""The driver's own library: every GPU, who holds its memory, and drivers that answer less, or nothing."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import pytest

from tests.fake_nvml import FakeNvml
from tunesmith_core import nvml
from tunesmith_core.machine import Driver, Gpu, GpuProcess

GIB = 1024**3
CARD: dict[str, Any] = {
    "name": "NVIDIA GeForce RTX 3060",
    "capability": (8, 6),
    "total": 12 * GIB,
    "free": 11 * GIB,
    "processes": [],
}


def answers(*gpus: dict[str, Any] | None) -> dict[str, Any]:
    return {"driver": "552.44", "cuda": 12040, "gpus": [gpu or {"lost": True} for gpu in gpus]}


def test_every_gpu_is_told_and_a_lost_one_keeps_its_number() -> None:
    library = FakeNvml(answers(None, CARD))
    reading = nvml.ask(library)
    assert reading.driver == Driver(version="552.44", cuda_version=(12, 4))
    assert reading.problem is None
    assert reading.gpus == (
        Gpu(
            index=1,
            name="NVIDIA GeForce RTX 3060",
            compute_capability=(8, 6),
            total_bytes=12 * GIB,
            free_bytes=11 * GIB,
            processes=(),
        ),
    )
    assert library.ended


def test_what_a_gpu_does_not_tell_is_unknown() -> None:
    shared = CARD | {"name": "", "capability": None, "total": None, "processes": None}
    reading = nvml.ask(FakeNvml(answers(shared)))
    assert reading.gpus == (Gpu(index=0, name="NVIDIA GPU"),)


@pytest.mark.parametrize("generation", ["_v3", "_v2", ""])
def test_holders_of_memory_are_named_largest_first(generation: str) -> None:
    busy = CARD | {"processes": [[2**22 + 1, "gone", None], [os.getpid(), "python", 3 * GIB]]}
    (gpu,) = nvml.ask(FakeNvml(answers(busy), processes=generation)).gpus or ()
    assert gpu.processes is not None
    first, second = gpu.processes
    assert (first.pid, first.used_bytes) == (os.getpid(), 3 * GIB)
    assert first.name
    assert second == GpuProcess(pid=2**22 + 1)


def test_a_driver_without_the_functions_about_processes_leaves_them_unknown() -> None:
    (gpu,) = nvml.ask(FakeNvml(answers(CARD), processes="_v9")).gpus or ()
    assert gpu.processes is None


def test_a_driver_that_does_not_start_says_why() -> None:
    broken = {"problem": "Driver/library version mismatch"}
    assert nvml.ask(FakeNvml(broken)) == nvml.Reading(problem="Driver/library version mismatch")
    silent = FakeNvml(broken, missing=("nvmlErrorString",))
    assert nvml.ask(silent).problem == "NVML error 9"


def test_a_driver_that_tells_neither_version_nor_gpus() -> None:
    assert nvml.ask(FakeNvml({"driver": None, "cuda": 0, "gpus": None})) == nvml.Reading()
    old = FakeNvml(answers(), missing=("nvmlSystemGetCudaDriverVersion_v2",))
    assert nvml.ask(old) == nvml.Reading(driver=Driver(version="552.44"), gpus=())


def test_the_library_is_looked_for_where_the_subsystem_for_linux_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(place: str) -> FakeNvml:
        asked.append(place)
        if len(asked) < 2:
            raise OSError("not found")
        return FakeNvml(answers())

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert nvml.read() == nvml.Reading(driver=Driver(version="552.44", cuda_version=(12, 4)), gpus=())
    assert len(set(asked)) == 2
    if sys.platform == "linux":
        assert asked == ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"]


def test_no_library_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: str) -> None:
        raise OSError(f"{place} not found")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    assert nvml.read() is None


@pytest.mark.parametrize(("number", "version"), [(11080, (11, 8)), (12000, (12, 0)), (13010, (13, 1))])
def test_the_version_of_cuda_is_told_in_two_numbers(number: int, version: tuple[int, int]) -> None:
    assert nvml.ask(FakeNvml(answers() | {"cuda": number})).driver == Driver(version="552.44", cuda_version=version)
