"""A real disk of its own fills up in the middle of a run and is freed later: the run goes to its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = ["unshare", "--user", "--map-root-user", "--mount"]
"""A person who is no administrator may mount a disk in memory, which nobody else sees."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_disk_that_fills_up_and_is_freed_costs_no_step(tmp_path: Path, tiny_model: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=600m none '{disk}'"
    try:
        tried = subprocess.run([*ALONE, "sh", "-c", mount], capture_output=True, check=False, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if tried.returncode:
        pytest.skip(f"no disk can be mounted here: {tried.stderr}")
    drive = [sys.executable, "-m", "tests.e2e.fill_disk", str(disk), str(tiny_model)]
    done = subprocess.run(
        [*ALONE, "sh", "-c", f'{mount} && exec "$@"', "sh", *drive],
        capture_output=True,
        check=False,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["state"] == "finished", seen
    assert 70 <= seen["filled_at"] < 600
    assert seen["told"], "nobody was told of the pause"
    assert str(disk) in seen["told"][0]
    assert "no space is left on the disk" in seen["told"][0] or "are free" in seen["told"][0]
    assert seen["steps"] == list(range(1, 601))
    assert seen["in_order"]
    assert seen["checkpoints"] == [1, *range(50, 601, 50)]
    assert (seen["damaged"], seen["errors"], seen["supervised"]) == ([], [], False)
    assert "adapter_model.safetensors" in seen["adapter"]
