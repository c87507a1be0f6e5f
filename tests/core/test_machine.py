"""Facts about a computer survive the way through JSON."""

from __future__ import annotations

import json

import pytest

from tunesmith_core.machine import (
    Disk,
    Driver,
    Gpu,
    GpuProcess,
    Machine,
    PythonCandidate,
    Wsl,
    WslDistribution,
)

FULL = Machine(
    system="windows",
    system_name="Windows 11 家庭版",
    gpus=(
        Gpu(
            index=0,
            name="NVIDIA GeForce RTX 3060",
            compute_capability=(8, 6),
            total_bytes=6 << 30,
            processes=(GpuProcess(pid=12, name="game.exe"),),
        ),
    ),
    driver=Driver(version="552.44", cuda_version=(12, 4)),
    disks=(Disk(path="D:\\", free_bytes=1, kind="fixed"),),
    vc_runtime=(14, 42),
    long_paths=False,
    pythons=(PythonCandidate(executable="py.exe", version=(3, 13, 8), problem="can't import PyTorch"),),
    wsl=Wsl(state="ready", distributions=(WslDistribution(name="Ubuntu", version=2, default=True),)),
    leaks={"CC": "C:\\"},
    unknown=("security",),
)


def test_facts_come_back_equal_from_json() -> None:
    assert Machine.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


def test_unknown_stays_unknown_and_none_stays_none() -> None:
    machine = Machine.from_dict({"system": "linux", "gpus": []})
    assert machine.gpus == ()
    assert machine.other_gpus is None


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert Machine.from_dict({"system": "linux", "quantum": True}) == Machine(system="linux")


@pytest.mark.parametrize("data", [{}, {"system": "linux", "gpus": 3}, {"system": "linux", "gpus": [7]}, []])
def test_other_json_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not facts about a machine"):
        Machine.from_dict(data)  # type: ignore[arg-type]
