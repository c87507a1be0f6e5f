"""The NVIDIA GPUs and their driver: the driver's library, else nvidia-smi, else what bus, kernel and registry show."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

from tunesmith_core import nvidia_smi
from tunesmith_core.bounded import Output
from tunesmith_core.machine import Driver, Gpu
from tunesmith_core.nvml import Reading
from tunesmith_setup.probe import pci
from tunesmith_setup.probe.computer import Computer

PART_OF_TIME = 0.4
"""What the driver's library, and after it nvidia-smi, get of the probe's time."""

KERNEL_MODULE = "/proc/driver/nvidia/version"
KERNEL_GPUS = "/proc/driver/nvidia/gpus"

GENERATIONS: tuple[tuple[str, tuple[int, int]], ...] = (
    (r"\b(B100|B200|GB200)\b", (10, 0)),
    (r"\bRTX 50[5-9]0\b|\bBlackwell\b", (12, 0)),
    (r"\b(H100|H200|H800|H20|GH200)\b", (9, 0)),
    (r"\bRTX 40[5-9]0\b|\bAda\b|\bL(2|4|20|40|40S)\b", (8, 9)),
    (r"\b(A100|A800|A30)\b", (8, 0)),
    (r"\bRTX (30[5-9]0|2050|A\d{3,4})\b|\bA(2|10|10G|16|40)\b|\bMX570\b", (8, 6)),
    (r"\bRTX (20[6-8]0|[3-8]000)\b|\bTITAN RTX\b|\bGTX 16\d\d\b|\bT(4|400|500|550|600|1000|1200)\b|\bMX450\b", (7, 5)),
    (r"\bV100S?\b|\bTITAN V\b|\bGV100\b", (7, 0)),
    (r"\bP100\b|\bGP100\b", (6, 0)),
    (r"\bGTX 10\d\d\b|\bGT 10[13]0\b|\bP(4|6|40|\d{3,4})\b|\bTITAN Xp\b|\bMX(1[1-5]0|[23][1-5]0)\b", (6, 1)),
    (r"\bGTX 9\d\dM?\b|\bM(4|40|60|\d{4})\b", (5, 2)),
    (r"\bGTX? [67]\d\dM?\b|\bK\d{2,4}\b", (3, 5)),
)
"""Compute capability by name, newest first (NVIDIA's table of CUDA GPUs); for GPUs whose driver can't be asked."""


def facts(computer: Computer) -> dict[str, Any]:
    """Return `gpus` and `driver`."""
    reading = _asked(computer)
    if reading is not None and reading.gpus is not None:
        return {"gpus": tuple(_with_capability(gpu) for gpu in reading.gpus), "driver": reading.driver}
    cards = [card for card in pci.cards(computer) if card.maker == pci.NVIDIA]
    gpus = _kernels_gpus(computer) or tuple(Gpu(index=index, name=card.name) for index, card in enumerate(cards))
    driver = (reading.driver if reading else None) or _seen_driver(computer, cards)
    if reading and reading.problem:
        driver = replace(driver or Driver(version="", source="nvidia-smi"), problem=reading.problem)
    return {"gpus": tuple(_with_capability(gpu) for gpu in gpus), "driver": driver if gpus else None}


def capability_of_name(name: str) -> tuple[int, int] | None:
    """Return the compute capability of a GPU by its name; None for a name that the table does not have."""
    return next((capability for pattern, capability in GENERATIONS if re.search(pattern, name)), None)


def _with_capability(gpu: Gpu) -> Gpu:
    return gpu if gpu.compute_capability else replace(gpu, compute_capability=capability_of_name(gpu.name))


def _asked(computer: Computer) -> Reading | None:
    """Return what the driver says; None when nothing answers in time."""
    reading = computer.nvml(computer.timeout_s * PART_OF_TIME)
    if reading is not None and reading.gpus is not None:
        return reading
    # What is left is for the bus, so that a driver that hangs still has its GPUs named.
    ends = time.monotonic() + computer.timeout_s * PART_OF_TIME

    def run(command: list[str]) -> Output | None:
        left_s = ends - time.monotonic()
        return computer.run(command, left_s) if left_s > 0 else None

    return nvidia_smi.read(run, windows=computer.system == "windows") or reading


def _kernels_gpus(computer: Computer) -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's kernel module lists."""
    found = []
    for index, address in enumerate(computer.names(KERNEL_GPUS)):
        model = re.search(r"^Model:\s*(.+)$", computer.read(f"{KERNEL_GPUS}/{address}/information") or "", re.MULTILINE)
        found.append(Gpu(index=index, name=model[1].strip() if model else "NVIDIA GPU"))
    return tuple(found)


def _seen_driver(computer: Computer, cards: list[pci.Card]) -> Driver | None:
    """Return the driver that is installed, whether or not it works."""
    module = re.search(r"\s(\d{3,}\.[\d.]+)\s", computer.read(KERNEL_MODULE) or "")
    if module:
        return Driver(version=module[1], source="kernel")
    versions = (windows_driver(card.driver_version) for card in cards if card.driver_version)
    version = next((version for version in versions if version), None)
    return Driver(version=version, source="registry") if version else None


def windows_driver(version: str) -> str | None:
    """Return NVIDIA's version for the one that Windows shows: "32.0.15.6094" is 560.94."""
    digits = "".join(version.split(".")[2:])[-5:]
    return f"{digits[:3]}.{digits[3:]}" if len(digits) == 5 and digits.isdecimal() else None
