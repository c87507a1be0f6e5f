"""Limits on memory are named where they made a run fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunesmith_core import memory_limits
from tunesmith_core.errors import TunesmithError
from tunesmith_core.memory_limits import limit_words, num_kills, speaks_of_memory, with_limit

resource = pytest.importorskip("resource")
GIB = 1 << 30


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of both versions in a folder, and a process without a limit of its own."""
    own = tmp_path / "own"
    own.write_text("5:memory:/old\n4:cpu,cpuacct:/old\n0::/outer/inner\n")
    root = tmp_path / "groups"
    (root / "outer" / "inner").mkdir(parents=True)
    (root / "memory" / "old").mkdir(parents=True)
    monkeypatch.setattr(memory_limits, "OWN_GROUP", own)
    monkeypatch.setattr(memory_limits, "GROUPS", root)
    limit_process(monkeypatch, resource.RLIM_INFINITY)
    return root


def limit_process(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr(memory_limits.resource, "getrlimit", lambda _: (num_bytes, num_bytes))


def test_without_limits_nothing_is_said(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit_words() is None
    (groups / "outer" / "memory.max").write_text("max\n")
    (groups / "memory" / "old" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert limit_words() is None
    failure = TunesmithError("memory-full", "Step 3 failed.")
    assert with_limit(failure) is failure
    monkeypatch.setattr(memory_limits, "OWN_GROUP", groups / "nowhere")
    assert limit_words() is None


def test_what_a_group_may_use_counts_up_to_what_no_machine_has(groups: Path) -> None:
    for num_bytes, is_limit in ((memory_limits.UNLIMITED_BYTES - 1, True), (memory_limits.UNLIMITED_BYTES, False)):
        (groups / "outer" / "memory.max").write_text(str(num_bytes))
        assert (limit_words() is not None) == is_limit
    assert memory_limits.UNLIMITED_BYTES == 2**60


def test_a_group_may_have_a_colon_in_its_name(groups: Path) -> None:
    memory_limits.OWN_GROUP.write_text("0::/a:b:c\n")
    (groups / "a:b:c").mkdir()
    (groups / "a:b:c" / "memory.max").write_text(str(2 * GIB))
    assert limit_words() == "Its control group may use 2.0 GiB of memory."


def test_the_tightest_limit_is_named(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (groups / "memory" / "old" / "memory.limit_in_bytes").write_text(f"{8 * GIB}\n")
    assert limit_words() == "Its control group may use 8.0 GiB of memory."
    (groups / "outer" / "memory.max").write_text(f"{6 * GIB}\n")
    (groups / "outer" / "inner" / "memory.max").write_text(f"{7 * GIB}\n")
    failure = with_limit(TunesmithError("memory-full", "Step 3 failed.", context="a log"))
    assert failure.message == "Step 3 failed.\nIts control group may use 6.0 GiB of memory."
    assert (failure.code, failure.context) == ("memory-full", "a log")
    assert failure.hint.startswith("Raise this limit")
    limit_process(monkeypatch, 5 * GIB)
    assert limit_words() == "This process may use 5.0 GiB of address space (ulimit -v)."


def test_a_crash_names_the_limit_and_keeps_its_next_step(groups: Path) -> None:
    (groups / "outer" / "memory.max").write_text(f"{GIB}\n")
    failure = with_limit(TunesmithError("engine-crashed", "It ended by SIGSEGV.", hint="Resume.", actions=["retry"]))
    assert failure.message.startswith("It ended by SIGSEGV.\nIts control group")
    assert (failure.code, failure.hint, failure.actions) == ("engine-crashed", "Resume.", ("retry",))


def test_other_failures_stay_as_they_are(groups: Path) -> None:
    (groups / "outer" / "memory.max").write_text("1000\n")
    failure = TunesmithError("cuda-oom", "x")
    assert with_limit(failure) is failure


def test_what_the_system_ended_for_lack_of_memory_is_counted(groups: Path) -> None:
    assert num_kills() == 0
    (groups / "outer" / "inner" / "memory.events").write_text("low 0\nmax 7\n")
    (groups / "outer" / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 0\n")
    assert num_kills() == 2


def test_words_of_libraries() -> None:
    assert speaks_of_memory("libgomp: Thread creation failed: Resource temporarily unavailable")
    assert not speaks_of_memory("KeyError: 'memory'")
