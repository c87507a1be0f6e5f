"""What nvidia-smi prints, in its wordings from driver 470 to 610, and what it prints when something is wrong."""

from __future__ import annotations

import pytest

from tunesmith_core import nvidia_smi
from tunesmith_core.bounded import Output
from tunesmith_core.machine import Driver, Gpu, GpuProcess
from tunesmith_core.nvml import Reading

MIB = 1024**2
OLD = "| NVIDIA-SMI 552.44                 Driver Version: 552.44         CUDA Version: 12.4     |\n"
NEW = "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |\n"
TABLE = "index, name, compute_cap, memory.total [MiB], memory.free [MiB], driver_version, pci.bus_id\n"
HOLDERS = "gpu_bus_id, pid, process_name, used_gpu_memory [MiB]\n"
CARD = "0, NVIDIA GeForce RTX 3060, 8.6, 12288, 11264, 552.44, 00000000:01:00.0\n"


class Program:
    """An nvidia-smi whose answers depend on the question; asked more, it can't be started."""

    def __init__(
        self, heading: str | None, table: str | None = None, holders: str | None = None, code: int = 0
    ) -> None:
        self.answers = {"--query-gpu": table, "--query-compute-apps": holders}
        self.heading = heading
        self.code = code
        self.questions: list[str] = []

    def __call__(self, command: list[str]) -> Output | None:
        self.questions.append(" ".join(command))
        question = command[1].partition("=")[0] if command[1:] else ""
        text = self.answers[question] if question else self.heading
        if text is None:
            return None
        return Output(2 if text.startswith("Field") else self.code, text.encode())


@pytest.mark.parametrize(
    ("heading", "version", "cuda"),
    [
        (OLD, "552.44", (12, 4)),
        (NEW, "610.43.02", (13, 3)),
        ("| NVIDIA-SMI 331.62     Driver Version: 331.62         |\n", "331.62", None),
        ("| NVIDIA-SMI 525.85.05    Driver Version: 528.49       CUDA Version: 12.0     |\n", "528.49", (12, 0)),
    ],
)
def test_driver_and_cuda_are_read_in_every_wording(heading: str, version: str, cuda: tuple[int, int] | None) -> None:
    reading = nvidia_smi.read(Program(heading, TABLE, HOLDERS))
    assert reading == Reading(Driver(version=version, cuda_version=cuda, source="nvidia-smi"), ())


def test_a_gpu_with_its_holders() -> None:
    holders = (
        HOLDERS
        + "00000000:01:00.0, 8, C:\\Games\\game.exe, [N/A]\n"
        + "00000000:01:00.0, 7, /usr/bin/python3, 2048\n"
        + "00000000:02:00.0, 9, other, 1\n"
        + "00000000:01:00.0, [Insufficient Permissions], , 1\n"
    )
    reading = nvidia_smi.read(Program(OLD, TABLE + CARD, holders))
    assert reading is not None
    assert reading.gpus == (
        Gpu(
            index=0,
            name="NVIDIA GeForce RTX 3060",
            compute_capability=(8, 6),
            total_bytes=12288 * MIB,
            free_bytes=11264 * MIB,
            processes=(
                GpuProcess(pid=7, name="python3", used_bytes=2048 * MIB),
                GpuProcess(pid=8, name="game.exe", used_bytes=None),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            "0, NVIDIA GB10, 12.1, [N/A], [Not Supported], 580.95.05, x\n",
            Gpu(index=0, name="NVIDIA GB10", compute_capability=(12, 1)),
        ),
        ("1, , [N/A], 10, [Unknown Error], 552.44, x\n", Gpu(index=1, name="NVIDIA GPU", total_bytes=10 * MIB)),
        ("[GPU is lost], [GPU is lost], 1, 2, 3, 4, 5\n", None),
        ("Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\n", None),
    ],
)
def test_fields_that_a_gpu_lacks(row: str, expected: Gpu | None) -> None:
    reading = nvidia_smi.read(Program(OLD, TABLE + row))
    assert reading is not None
    assert reading.gpus == ((expected,) if expected else ())


def test_an_old_driver_is_asked_again_without_the_compute_capability() -> None:
    program = Program(OLD, 'Field "compute_cap" is not a valid field to query.\n')
    reading = nvidia_smi.read(program)
    assert reading is not None
    assert reading.gpus is None
    assert "compute_cap" in program.questions[1]
    assert "compute_cap" not in program.questions[2]
    assert "index,name,memory.total" in program.questions[2]


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("No devices were found\n", 6, Reading(gpus=())),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
            9,
            Reading(problem="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        ),
        ("Failed to initialize NVML: N/A\n\n", 255, Reading(problem="Failed to initialize NVML: N/A")),
        ("", 1, Reading(problem="nvidia-smi ended with code 1")),
    ],
)
def test_what_it_says_when_the_driver_does_not_work(text: str, code: int, expected: Reading) -> None:
    assert nvidia_smi.read(Program(text, code=code)) == expected


def test_an_empty_answer_lists_no_gpu() -> None:
    reading = nvidia_smi.read(Program(OLD, ""))
    assert reading is not None
    assert reading.gpus == ()


def test_it_is_looked_for_where_drivers_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(None)
    assert nvidia_smi.read(program, windows=False) is None
    assert program.questions == ["nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"]
    monkeypatch.setenv("SYSTEMROOT", "D:\\Windows")
    program = Program(None)
    assert nvidia_smi.read(program, windows=True) is None
    assert program.questions[0] == "D:\\Windows\\System32\\nvidia-smi.exe"
    assert program.questions[1].endswith("NVSMI\\nvidia-smi.exe")
