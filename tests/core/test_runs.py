"""Run folders: names, creation under crash, state as a fold of the journal and the lease."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.processes import KILLED
from tests.run_adapter import make_adapter
from tunesmith_core import files, runs
from tunesmith_core.errors import UserError
from tunesmith_core.locks import FileLock
from tunesmith_core.process_identity import ProcessIdentity, current
from tunesmith_core.protocol import Event, JournalWriter
from tunesmith_core.runs import Run, RunState, RunStatus, create_run, open_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]


def fold(*events: tuple[str, dict[str, object]]) -> RunStatus:
    status = RunStatus()
    for number, (kind, data) in enumerate(events, start=1):
        status.fold(Event(number, float(number), kind, data))
    return status


def test_a_step_without_a_number_leaves_the_last_one() -> None:
    """A damaged journal is read to its end."""
    begun = ("phase", {"name": "training"})
    told = fold(begun, ("step", {"step": 3, "loss": 1.0}), ("step", {"step": None}), ("checkpoint", {"step": None}))
    assert (told.step, told.last_checkpoint_step) == (3, 0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My Run!", "my-run"),
        ("数据 v1", "数据-v1"),
        ("../..", "run"),
        ("", "run"),
        ("con", "run-con"),
        ("a" * 99, "a" * 60),
        ("nul.txt", "run-nul.txt"),
        ("x.", "x"),
    ],
)
def test_names_are_safe_on_every_system(text: str, name: str) -> None:
    assert runs.slug(text).rstrip("-") == name


def test_runs_of_one_name_can_be_told_apart(make_spec: Make) -> None:
    named = [create_run(make_spec("My run")) for _ in range(3)]
    assert [runs.display_name(run) for run in named] == ["My run", "My run-02", "My run-03"]
    assert [runs.slug(runs.display_name(run)) for run in named[1:]] == [run.id for run in named[1:]]


def test_a_run_is_created_whole_and_numbered(make_spec: Make) -> None:
    first, second = create_run(make_spec("Test")), create_run(make_spec("Test"))
    assert [first.id, second.id] == ["test-01", "test-02"]
    assert first.load_spec().to_dict() == make_spec("Test").to_dict()
    assert runs.display_name(first) == "Test"
    assert 0 < first.created_at <= second.created_at
    assert [run.id for run in runs.iter_runs()] == ["test-01", "test-02"]
    assert sorted(os.listdir(first.path.parent)) == ["test-01", "test-02"]
    unnamed = create_run(make_spec())
    assert runs.display_name(unnamed) == unnamed.id == "data-model-01"


@pytest.mark.parametrize("point", ["folder.before-rename", "folder.after-rename", "file.before-rename"])
def test_a_kill_while_creating_leaves_a_whole_run_or_none(make_spec: Make, tmp_path: Path, point: str) -> None:
    spec = tmp_path / "spec.json"
    files.atomic_write_json(spec, make_spec("k").to_dict())
    code = (
        "import sys; from pathlib import Path; from tunesmith_core.runs import create_run;"
        "from tunesmith_core.spec import RunSpec; create_run(RunSpec.load(Path(sys.argv[1])))"
    )
    environment = {**os.environ, files.CRASHPOINT_VARIABLE: point, "PYTHONPATH": str(Path(runs.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-c", code, str(spec)], env=environment, check=False)
    assert result.returncode == KILLED
    assert [run.load_spec().name for run in runs.iter_runs()] == (["k"] if point == "folder.after-rename" else [])
    assert create_run(make_spec("k")).load_spec().name == ("k-02" if point == "folder.after-rename" else "k")


def test_a_name_taken_meanwhile_is_passed_over(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = files.publish_folder

    def race(staging: Path, final: Path) -> None:
        if final.name.endswith("-01"):
            final.mkdir()
        publish(staging, final)

    monkeypatch.setattr(files, "publish_folder", race)
    assert create_run(make_spec("r")).id == "r-02"


def test_a_full_disk_leaves_nothing_behind(make_spec: Make, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files, "publish_folder", full)
    with pytest.raises(OSError, match="full"):
        create_run(make_spec("r"))
    assert os.listdir(home / "runs") == []


def test_runs_are_opened_by_id_or_folder(make_spec: Make, tmp_path: Path) -> None:
    run = create_run(make_spec("r"))
    assert open_run("r-01") == open_run(str(run.path)) == run
    for name in ("none", ""):
        with pytest.raises(UserError) as caught:
            open_run(name)
        assert caught.value.code == "run-not-found"


def test_runs_are_opened_by_the_name_that_a_person_gave(make_spec: Make) -> None:
    run = create_run(make_spec("My chat (2)"))
    create_run(make_spec("other"))
    assert run.id != "My chat (2)"
    assert open_run("My chat (2)") == run


def test_a_name_of_several_runs_lists_them_newest_first(make_spec: Make) -> None:
    runs = [create_run(make_spec(name)) for name in ("one", "two", "three")]
    for number, run in enumerate(runs):
        files.atomic_write_json(run.spec_path, {**files.read_json(run.spec_path), "name": "the same"})
        header = run.path / "run.json"
        files.atomic_write_json(header, {**files.read_json(header), "created_at": 1000.0 + number})
    with pytest.raises(UserError) as caught:
        open_run("the same")
    assert caught.value.code == "run-ambiguous"
    assert caught.value.message == "3 runs are named 'the same', newest first: three-01, two-01, one-01."


def test_the_latest_run_is_opened_by_that_word(make_spec: Make) -> None:
    with pytest.raises(UserError):
        open_run("latest")
    for number, name in enumerate(("b", "a")):
        header = create_run(make_spec(name)).path / "run.json"
        files.atomic_write_json(header, {**files.read_json(header), "created_at": 1000.0 - number})
    assert open_run("latest").id == "b-01"


def test_a_damaged_run_is_still_listed(make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    (run.path / "run.json").write_text("[]")
    (run.path / "spec.json").write_text("{")
    run.lease_path.write_text('{"supervisor": null}')
    assert run.created_at == 0.0
    assert runs.display_name(run) == "r-01"
    assert run.supervisor() is None
    assert [found.id for found in runs.iter_runs()] == ["r-01"]


def test_parts_of_a_run_have_their_place(tmp_path: Path) -> None:
    run = Run(tmp_path)
    places = [run.heartbeat_path, run.engine_log_path, run.supervisor_log_path, run.checkpoints_path, run.adapter_path]
    names = "heartbeat engine.log supervisor.log checkpoints adapter".split()
    assert [path.relative_to(tmp_path).as_posix() for path in places] == names


LAST_STEP: list[tuple[str, dict[str, Any]]] = [
    ("setup", {"total_steps": 3}),
    ("phase", {"name": "training"}),
    ("step", {"step": 3}),
]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], RunState.QUEUED),
        ([("phase", {"name": "queued"})], RunState.QUEUED),
        ([("hello", {})], RunState.PREPARING),
        ([("phase", {"name": "model"})], RunState.PREPARING),
        ([("phase", {"name": "training"})], RunState.RUNNING),
        ([("phase", {"name": "saving"})], RunState.FINALIZING),
        ([("phase", {"name": "paused", "code": "disk-full"})], RunState.PAUSED),
        ([("phase", {"name": "paused"}), ("phase", {"name": "training"})], RunState.RUNNING),
        ([("phase", {"name": "paused"}), ("step", {"step": 3})], RunState.RUNNING),
        ([("result", {"status": "finished"}), ("stopping", {"mode": "save"})], RunState.FINISHED),
        ([("stopping", {"mode": "save"}), ("phase", {"name": "training"})], RunState.STOPPING),
        ([("stopping", {"mode": "save"}), ("phase", {"name": "saving"})], RunState.FINALIZING),
        (LAST_STEP, RunState.FINALIZING),
        ([*LAST_STEP, ("phase", {"name": "evaluating"})], RunState.RUNNING),
        ([*LAST_STEP, ("phase", {"name": "evaluating"}), ("phase", {"name": "training"})], RunState.FINALIZING),
        ([*LAST_STEP[:2], ("step", {"step": 2})], RunState.RUNNING),
        ([*LAST_STEP, ("stopping", {"mode": "save"})], RunState.STOPPING),
        ([("result", {"status": "finished"})], RunState.FINISHED),
        ([("result", {"status": "stopped"})], RunState.STOPPED),
        ([("result", {"status": "dancing"})], RunState.FAILED),
        ([("result", {"status": "stopped"}), ("phase", {"name": "queued"})], RunState.QUEUED),
    ],
)
def test_the_state_is_folded_from_events(events: list[tuple[str, dict[str, object]]], state: RunState) -> None:
    assert fold(*events).state is state


def test_a_pause_names_what_it_waits_for() -> None:
    paused = ("phase", {"name": "paused", "code": "disk-full", "message": "no space"})
    assert fold(paused).obstacle == "disk-full"
    assert fold(paused, ("step", {"step": 1})).obstacle == ""
    assert fold(paused, ("phase", {"name": "saving"})).obstacle == ""
    assert fold(paused, ("result", {"status": "stopped"})).obstacle == ""


def test_a_live_run_that_its_disk_silences_is_paused(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(make_spec("r"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("phase", name="training")
    free_bytes = 1 << 30
    monkeypatch.setattr(files, "free_bytes", lambda _: free_bytes)
    monkeypatch.setattr(runs, "SILENT_S", 1e6)
    with FileLock(run.lock_path):
        now = (run.status().last_event_at or 0.0) + runs.SILENT_S
        assert runs.silenced(run, run.status(), now) is None
        free_bytes = 1000
        assert run.status().state is RunState.RUNNING, "it spoke a moment ago"
        monkeypatch.setattr(runs, "SILENT_S", 0.0)
        status = run.status()
        assert (status.state, status.obstacle) == (RunState.PAUSED, "disk-full")
        silence = runs.silenced(run, fold(("phase", {"name": "training"})), now)
        assert silence is not None
        assert str(run.path) in silence.data["message"]
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert run.status().obstacle == "permission-or-antivirus"
        assert runs.silenced(Run(run.path / "gone"), fold(("phase", {"name": "training"})), now) is None
        for name in ("queued", "paused"):
            assert runs.silenced(run, fold(("phase", {"name": name})), now) is None
    assert run.status().state is RunState.INTERRUPTED


def test_numbers_are_folded_too() -> None:
    status = fold(
        ("hello", {"device_name": "GPU"}),
        ("setup", {"total_steps": 9}),
        ("step", {"step": 1, "loss": 2.0, "tokens_per_s": 5.0}),
        ("eval", {"step": 0, "loss": 0.5}),
        ("eval", {"step": 1, "loss": 3.0}),
        ("eval", {"step": 1, "loss": 1.0}),
        ("eval", {"step": 1, "loss": None}),
        ("checkpoint", {"step": 1}),
        ("error", {"code": "bug"}),
        ("result", {"status": "failed", "step": 1}),
    )
    assert (status.device_name, status.total_steps, status.step, status.loss) == ("GPU", 9, 1, 2.0)
    assert (status.first_eval_loss, status.best_eval_loss, status.eval_loss) == (0.5, 1.0, None)
    assert (status.last_checkpoint_step, status.started_at, status.ended_at, status.tokens_per_s) == (1, 1.0, 10.0, 5.0)
    assert status.error == {"code": "bug"}
    status.fold(Event(10, 10.0, "hello", {"resumed_from_step": 1}))
    assert (status.error, status.ended_at, status.started_at, status.state.live) == (None, None, 1.0, True)


def test_the_newest_evaluation_is_that_of_the_adapter_but_not_one_before_training() -> None:
    before = ("eval", {"step": 0, "loss": 6.0})
    assert fold(before).final_eval_loss is None
    status = fold(before, ("eval", {"step": 5, "loss": 5.79}), ("eval", {"step": 9, "loss": 5.926}))
    assert (status.final_eval_loss, status.best_eval_loss) == (5.926, 5.79)


def test_a_resumed_run_is_where_its_checkpoint_was() -> None:
    steps: list[tuple[str, dict[str, object]]] = [("setup", {"total_steps": 9}), ("step", {"step": 4})]
    assert fold(*steps, ("hello", {"resumed_from_step": 3})).step == 3
    assert fold(*steps, ("hello", {})).step == 4
    assert fold(*steps, ("setup", {})).total_steps == 0


def test_what_a_killed_engine_left_is_brought_to_an_end(make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    (run.tmp_path / "earlier-adapter").mkdir(parents=True)
    (run.tmp_path / "half").touch()
    run.sweep()
    assert not run.tmp_path.exists()


@pytest.mark.parametrize(("name", "values"), [("run.json", {"version": "1"}), ("spec.json", {"version": True})])
def test_a_folder_is_proven_to_be_a_run_by_header_and_settings(
    make_spec: Make, name: str, values: dict[str, object]
) -> None:
    run = create_run(make_spec("r"))
    assert run.is_proven()
    files.atomic_write_json(run.path / name, files.read_json(run.path / name) | values)
    assert not run.is_proven()


def test_files_that_are_being_saved_are_seen(make_spec: Make) -> None:
    run = create_run(make_spec("s"))
    assert run.saved_files() == set()
    staging = run.checkpoints_path / ".staging-step-000002-ab"
    for folder in (run.checkpoints_path / "step-000001", staging, run.tmp_path):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"1234")
    sizes = dict(run.saved_files())
    assert sizes.keys() == {str(staging), str(staging / "file")}
    assert sizes[str(staging / "file")] == 4


def test_a_live_state_without_a_supervisor_is_interrupted(make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    JournalWriter(run.journal_path).write("hello")
    assert run.status().state is RunState.INTERRUPTED
    with FileLock(run.lock_path):
        assert run.status().state is RunState.PREPARING
    me = current()
    files.atomic_write_json(run.lease_path, {"supervisor": me.to_dict()})
    assert run.status().state is RunState.PREPARING
    files.atomic_write_json(run.lease_path, {"supervisor": ProcessIdentity(me.pid, me.start - 1, me.boot).to_dict()})
    assert run.status().state is RunState.INTERRUPTED


def test_a_run_lasts_as_long_as_an_engine_works_on_it() -> None:
    story: list[tuple[float, str, dict[str, object], float | None]] = [
        (1.0, "phase", {"name": "queued"}, None),
        (10.0, "hello", {}, 1_990.0),
        (20.0, "step", {"step": 1}, 1_990.0),
        (30.0, "result", {"status": "stopped"}, 20.0),
        (1000.0, "phase", {"name": "queued"}, 20.0),
        (1100.0, "phase", {"name": "queued"}, 20.0),
        (1500.0, "hello", {"resumed_from_step": 1}, 520.0),
        (1600.0, "result", {"status": "finished"}, 120.0),
    ]
    status = RunStatus()
    for number, (t, kind, data, lasted_s) in enumerate(story):
        status.fold(Event(number, t, kind, data))
        assert status.lasted_s(2_000.0) == lasted_s, t
    interrupted = fold(("hello", {}), ("step", {"step": 1}))
    interrupted.state = RunState.INTERRUPTED
    assert interrupted.lasted_s(2_000.0) == 1.0


def spoil(how: str, adapter: Path) -> None:
    weights = adapter / "adapter_model.safetensors"
    match how:
        case "gone":
            shutil.rmtree(adapter)
        case "a file":
            shutil.rmtree(adapter)
            adapter.write_bytes(b"x")
        case "no weights":
            weights.unlink()
        case "empty weights":
            weights.write_bytes(b"")
        case "a folder for weights":
            weights.unlink()
            weights.mkdir()
        case "no configuration":
            (adapter / "adapter_config.json").unlink()


@pytest.mark.parametrize(
    "how", ["gone", "a file", "no weights", "empty weights", "a folder for weights", "no configuration"]
)
def test_an_adapter_that_is_not_whole_is_noticed(how: str, make_spec: Make) -> None:
    run = create_run(make_spec())
    finished = RunStatus(state=RunState.FINISHED, artifacts={"adapter": "adapter"})
    make_adapter(run.adapter_path)
    assert run.adapter_problem(finished) is None
    spoil(how, run.adapter_path)
    problem = run.adapter_problem(finished)
    assert problem is not None
    assert str(problem.message).startswith(str(run.adapter_path))
    assert "train again" in problem.hint
    for step in (2, 10):
        folder = run.checkpoints_path / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / "MANIFEST.json").touch()
    problem = run.adapter_problem(finished)
    assert problem is not None
    assert f"newest checkpoint is {folder}." in problem.hint
    assert run.adapter_problem(RunStatus(state=RunState.STOPPED)) is None
