"""The headless example tells how the run goes, where the adapter is and what the held-out loss was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress
from tunesmith_assets.samples import example_spec
from tunesmith_core import files, launch
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, RunFailure, TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, JournalWriter
from tunesmith_core.runs import Run, RunState, RunStatus, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_setup.installation import demo

JOURNAL = [
    ("hello", {}),
    ("phase", {"name": "model"}),
    ("phase", {"name": "model"}),
    ("eval", {"step": 0, "loss": 2.6}),
    ("warning", {"message": "slow disk"}),
    ("step", {"step": 9, "loss": 1.5}),
    ("step", {"step": 10, "loss": None}),
    ("step", {"step": 20, "loss": 0.51234}),
    ("sample", {"step": 10, "prompt": "Which colour?", "text": "Teal." + "x" * 200}),
    ("eval", {"step": 10, "loss": 0.031}),
]


@pytest.fixture
def play(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RunSpec]]:
    """Replaces launching: a started run plays JOURNAL and then these last events."""

    def prepare(*last: tuple[str, dict[str, object]]) -> list[RunSpec]:
        started: list[RunSpec] = []

        def start(spec: RunSpec) -> Run:
            started.append(spec)
            return Run(tmp_path / "okvarel-example-en-01")

        def wait(_: Run, on_event: Callable[[Event], None]) -> RunStatus:
            status = RunStatus()
            for number, (kind, data) in enumerate([*JOURNAL, *last]):
                event = Event(number + 1, 100.0 + number, kind, dict(data))
                status.fold(event)
                on_event(event)
            return status

        monkeypatch.setattr(launch, "start", start)
        monkeypatch.setattr(launch, "wait", wait)
        return started

    return prepare


def test_a_finished_example_names_adapter_and_losses(
    play: Callable[..., list[RunSpec]], progress: RecordedProgress, tmp_path: Path
) -> None:
    started = play(("result", {"status": "finished", "step": 60, "artifacts": {"adapter": "adapter"}}))
    assert demo.run(tmp_path / "model", progress) == EXIT_DONE
    assert started[0].model.path == str(tmp_path / "model")
    lines = [line.strip() for line in progress.lines]
    assert lines[-3:] == [
        f"adapter: {tmp_path / 'okvarel-example-en-01' / 'adapter'}",
        "evaluation loss: 2.600 before, 0.031 after",
        "trained 60 steps in 10.0 s",
    ]
    assert lines[1:-3] == [
        "model ...",
        "step 0: evaluation loss 2.600",
        "warning: slow disk",
        "step 10: loss nan",
        "step 20: loss 0.512",
        "step 10: Which colour? -> Teal." + "x" * 115,
        "step 10: evaluation loss 0.031",
    ]


def test_a_stopped_example_says_so(
    play: Callable[..., list[RunSpec]], progress: RecordedProgress, tmp_path: Path
) -> None:
    play(("result", {"status": "stopped", "step": 10}))
    assert demo.run(tmp_path / "model", progress) == EXIT_STOPPED
    assert progress.lines[-1].strip() == "The run was stopped."


def test_a_failed_example_raises_what_stopped_it(
    play: Callable[..., list[RunSpec]], progress: RecordedProgress, tmp_path: Path
) -> None:
    failure = RunFailure("nan-loss", "The loss of step 3 is not a number.").to_dict()
    play(("error", failure), ("result", {"status": "failed", "step": 3}))
    with pytest.raises(TunesmithError, match="step 3") as caught:
        demo.run(tmp_path / "model", progress)
    assert caught.value.code == "nan-loss"


def test_an_interrupted_example_raises(
    play: Callable[..., list[RunSpec]], progress: RecordedProgress, tmp_path: Path
) -> None:
    play()
    with pytest.raises(RunFailure) as caught:
        demo.run(tmp_path / "model", progress)
    assert caught.value.code == "engine-crashed"


def earlier_run(tmp_path: Path, name: str, created_at: float, *events: tuple[str, dict[str, object]]) -> Run:
    """A run of the example whose journal holds these events and whose supervisor is gone."""
    run = create_run(RunSpec.from_dict(example_spec("en", str(tmp_path / "model")) | {"name": name}))
    header = files.read_json(run.path / "run.json")
    files.atomic_write_json(run.path / "run.json", header | {"created_at": created_at})
    journal = JournalWriter(run.journal_path)
    for kind, data in events:
        journal.write(kind, **data)
    journal.close()
    return run


NAME = "Okvarel example (en)"
BEGUN: tuple[tuple[str, dict[str, object]], ...] = (("hello", {}), ("step", {"step": 20}))
FINISHED: tuple[str, dict[str, object]] = ("result", {"status": "finished", "step": 60})


def test_a_run_that_still_goes_is_followed(
    play: Callable[..., list[RunSpec]], progress: RecordedProgress, tmp_path: Path
) -> None:
    started = play(FINISHED)
    going = earlier_run(tmp_path, NAME, 2.0, *BEGUN)
    earlier_run(tmp_path, NAME, 1.0, *BEGUN, FINISHED)
    damaged = earlier_run(tmp_path, "of somebody", 3.0, *BEGUN)
    (damaged.path / "spec.json").write_text("{")
    with FileLock(going.lock_path):
        assert demo.run(tmp_path / "model", progress) == EXIT_DONE
    assert started == []
    assert f"run {going.id} in" in progress.text


def test_an_interrupted_run_is_resumed_where_it_can_be(
    play: Callable[..., list[RunSpec]], progress: RecordedProgress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[Run] = []
    monkeypatch.setattr(launch, "resume", resumed.append)
    started = play(FINISHED)
    interrupted = earlier_run(tmp_path, NAME, 2.0, *BEGUN)
    demo.run(tmp_path / "model", progress)
    assert (len(started), resumed) == (1, [])
    checkpoint = interrupted.checkpoints_path / "step-000020"
    checkpoint.mkdir(parents=True)
    (checkpoint / "MANIFEST.json").touch()
    demo.run(tmp_path / "model", progress)
    assert (len(started), resumed) == (1, [interrupted])


def test_a_bare_status_has_a_bare_summary(tmp_path: Path) -> None:
    assert demo.summary(RunStatus(state=RunState.FINISHED), tmp_path) == [f"adapter: {tmp_path / 'adapter'}"]
