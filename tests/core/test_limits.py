"""Limits for work on what others made: a child says what it does, and is ended when that takes too long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.core.test_operations import left, made
from tunesmith_core import memory_limits
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations import limits
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import NoSpec, PrepareSpec
from tunesmith_core.operations.limits import Limits, Portion, Portions, Watch
from tunesmith_core.operations.runner import conduct
from tunesmith_core.process_identity import cpu_seconds
from tunesmith_core.spec import RunSpec

__all__ = ["made"]  # a fixture
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def portions(tmp_path: Path) -> Portions:
    """Portions of a child, told to a file."""
    return Portions(tmp_path / "portion", Limits())


def told(portions: Portions, tmp_path: Path) -> Portion | None:
    """What the one who conducts that child sees, which is what the child means."""
    seen = Watch(tmp_path / "portion", os.getpid()).portion()
    assert seen is None or seen == portions.now
    return seen


def test_a_portion_is_seen_by_who_watches(portions: Portions, tmp_path: Path) -> None:
    assert told(portions, tmp_path) is None
    portions.about(Path("modèle"))
    portions.begin("tokenizer-loading")
    assert told(portions, tmp_path) == Portion(1, 20.0, "tokenizer-loading", "modèle", "", 0, 0)
    portions.about(Path("rows.jsonl"), "jsonl")
    portions.begin("reader", 7, more_cpu_s=3.0)
    assert told(portions, tmp_path) == Portion(2, 5.0, "reader", "rows.jsonl", "jsonl", 7, 0)
    portions.begin("template")
    assert told(portions, tmp_path) == Portion(3, 2.0, "template", "rows.jsonl", "jsonl", 7, 0)
    portions.begin("tokenizer", 1, last_row=16)
    assert told(portions, tmp_path) == Portion(4, 2.0, "tokenizer", "rows.jsonl", "jsonl", 1, 16)
    portions.end()
    assert told(portions, tmp_path) is None


def test_without_a_file_nobody_is_told_and_nothing_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "limit_own_memory", lambda _bytes: pytest.fail("this process has no limits"))
    portions = Portions()
    portions.about(Path("rows.jsonl"), "jsonl")
    portions.begin("template", 3)
    portions.limit_memory(1)
    portions.end()
    assert (portions.now.row, portions.now.work) == (3, "template")


def test_a_portion_names_file_and_row(portions: Portions) -> None:
    portions.about(Path("rows.parquet"), "parquet")
    portions.begin("template", 7)
    error = portions.now.over_time()
    assert isinstance(error, UserError)
    assert error.code == "foreign-limit"
    assert error.message == "rows.parquet, row 7: the chat template took longer than 2 s."
    portions.begin("tokenizer", 1, last_row=16)
    assert portions.now.over_memory().message == "rows.parquet, rows 1 to 16: the tokenizer needed too much memory."
    portions.about(Path("model"))
    portions.begin("prompt")
    words = "model: the chat template of a sample prompt wrote more than 1,000 characters."
    assert portions.now.over_output(1000).message == words
    error = portions.now.crashed(-6, "boom")
    assert "ended its process with exit code -6" in error.message
    assert error.context == "boom"
    assert "needed too much memory" in portions.now.crashed(-6, "Cannot allocate memory").message


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("std::bad_alloc")])
def test_a_lack_of_memory_is_named(portions: Portions, error: Exception) -> None:
    portions.about(Path("rows.jsonl"), "jsonl")
    portions.begin("template", 2)
    with pytest.raises(TunesmithError, match=r"rows.jsonl, line 2: the chat template needed too much memory"), portions:
        raise error


def test_a_limit_of_the_computer_is_not_the_fault_of_a_row(
    portions: Portions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limits, "of_process", lambda: iter([(1 << 30, "1 GiB")]))
    with pytest.raises(MemoryError), portions:
        raise MemoryError


def test_a_panic_leaves_its_portion_to_who_conducts(portions: Portions, tmp_path: Path) -> None:
    portions.begin("tokenizer", 2)
    with pytest.raises(SystemExit), portions:
        raise SystemExit
    assert told(portions, tmp_path) == portions.now


def test_other_errors_stay_what_they_are(portions: Portions, tmp_path: Path) -> None:
    portions.begin("template", 2)
    with pytest.raises(ValueError, match="broken"), portions:
        raise ValueError("broken")
    assert told(portions, tmp_path) is None
    with portions:
        portions.begin("template", 2)
    assert told(portions, tmp_path) is None


def test_who_watches_counts_processor_time_and_far_later_the_clock(
    portions: Portions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {"cpu": 0.0, "wall": 0.0}
    monkeypatch.setattr(limits, "cpu_seconds", lambda _pid: now["cpu"])
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now["wall"]))
    assert not Watch(tmp_path / "nowhere", 1).is_over()
    watch = Watch(tmp_path / "portion", 1)
    portions.begin("template", 1)
    assert not watch.is_over()
    now.update(cpu=1.9, wall=50.0)
    assert not watch.is_over()
    portions.begin("template", 2)
    assert not watch.is_over()
    now["cpu"] = 3.8
    assert not watch.is_over(), "each portion has its own time"
    now["cpu"] = 4.0
    assert watch.is_over()
    assert watch.late == portions.now
    watch = Watch(tmp_path / "portion", 1)
    assert not watch.is_over()
    now["wall"] += 61.0
    assert watch.is_over(), "it waits for ever"
    assert watch.late is not None
    assert watch.late.over_time().message.endswith("took longer than 60 s.")
    now["cpu"] = None  # type: ignore[assignment]
    assert not Watch(tmp_path / "portion", 1).is_over(), "it has ended"


def test_half_a_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "portion").write_bytes(b"x")
    assert Watch(tmp_path / "portion", 1).portion() is None


def test_processor_time_of_a_process() -> None:
    before_s = cpu_seconds(os.getpid())
    assert before_s is not None
    while (cpu_seconds(os.getpid()) or 0.0) <= before_s:
        pass
    assert cpu_seconds(0x7FFFFFFF) is None


@pytest.mark.skipif(sys.platform == "win32", reason="there the job limits the process")
class TestMemory:
    """What the system is asked for."""

    def test_what_is_written_to_is_limited(self) -> None:
        lines = (
            "from tunesmith_core.operations.limits import limit_own_memory\n"
            "limit_own_memory(64 << 20)\n"
            "held = bytearray(16 << 20)\n"
            "try: bytearray(128 << 20)\n"
            "except MemoryError: print('refused')\n"
            "limit_own_memory(256 << 20)\n"
            "held = bytearray(128 << 20)\n"
        )
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "engine")}
        done = subprocess.run(
            [sys.executable, "-c", lines], capture_output=True, text=True, check=False, env=environment
        )
        assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr

    @pytest.mark.parametrize(("hard", "expected"), [(-1, 1000), (500, 500), (2000, 1000)])
    def test_a_tighter_limit_of_the_person_stays(
        self, monkeypatch: pytest.MonkeyPatch, hard: int, expected: int
    ) -> None:
        asked: list[object] = []
        monkeypatch.setattr(limits, "Path", lambda name: Path("/nowhere") / name[1:])
        monkeypatch.setattr(limits.resource, "getrlimit", lambda _what: (0, hard))
        monkeypatch.setattr(limits.resource, "setrlimit", lambda _what, both: asked.append(both))
        limits.limit_own_memory(1000)
        assert asked == [(expected, hard)]

    def test_only_a_child_limits_itself(self, portions: Portions, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        monkeypatch.setattr(limits, "limit_own_memory", asked.append)
        portions.limit_memory(77)
        assert asked == [77]


PORTION = (
    "from tunesmith_core.operations.limits import Limits, Portions\n"
    "portions = Portions(operation.portion_path, Limits(cpu_s=0.2))\n"
    "portions.about(Path('rows.jsonl'), 'jsonl')\nportions.begin('template', 9)\n"
)


def test_one_that_takes_too_long_for_a_row_is_ended_and_the_row_named(made: Callable[..., Kind]) -> None:
    outcome = conduct(made(PORTION + "while True: pass", limits=Limits()), NoSpec())
    assert outcome.state is OperationState.FAILED
    assert outcome.error is not None
    assert "rows.jsonl, line 9: the chat template took longer than" in outcome.error.message
    assert left() == []


def test_a_crash_at_a_row_names_it(made: Callable[..., Kind]) -> None:
    outcome = conduct(made(PORTION + "import os; os.abort()", limits=Limits()), NoSpec())
    assert outcome.error is not None
    assert "rows.jsonl, line 9: the chat template ended its process" in outcome.error.message
    outcome = conduct(made(PORTION + "portions.end(); sys.exit('boom')", limits=Limits()), NoSpec())
    assert outcome.error is not None
    assert outcome.error.code == "bug"


def test_what_it_left_in_its_folder_is_taken_with_the_answer(made: Callable[..., Kind]) -> None:
    lines = "(operation.path / 'left').write_text('x')\nhost.event('result', status='finished', answer=[1])"
    outcome = conduct(made(lines), NoSpec(), take=lambda folder, answer: ((folder / "left").read_text(), answer))
    assert outcome.get() == ("x", [1])


def test_what_to_prepare_survives_the_way_to_the_child() -> None:
    spec = RunSpec(name="x")
    spec.model.path, spec.data.sources[0].path = "m", "d.jsonl"
    values = PrepareSpec(spec, "folder", "Who?").to_dict()
    assert PrepareSpec.from_dict(values) == PrepareSpec(spec, "folder", "Who?")
