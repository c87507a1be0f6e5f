"""`tunesmith data questions`: what is asked for, what came of it, and what stays when it is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, data_library, terminal
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.questions import (
    PASSAGES,
    QUESTIONS,
    Begun,
    PassagesSpec,
    QuestionsSpec,
    begun,
    note_path,
)
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

Script = Callable[[dict[str, Any]], None]
Capture = pytest.CaptureFixture[str]

ANSWER = {"path": "/a/q.jsonl", "passages": 9, "rows": 1200, "unread": 2, "empty": 0, "duplicates": 3, "unread_rows": 1}


def test_what_was_written_is_told(fake_engine: Script, data_file: Path, model_folder: Path, capsys: Capture) -> None:
    words = ["data", "questions", str(data_file), "--model", str(model_folder), "--to", "/a/q.jsonl"]
    fake_engine({"write-questions": ANSWER})
    assert cli.main(words) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "Questions written: 1,200. Passages: 9. They are in /a/q.jsonl"
    for note in (
        "Passages whose reply could not be read: 2",
        "Questions that were asked before and were left out: 3",
        "Rows or pages of the documents that could not be read: 1",
        "Review them on the Data page before you train on them.",
    ):
        assert note in told.err
    assert "without words" not in told.err
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ANSWER


def test_what_is_asked_for_is_what_was_named(
    data_file: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    specs: list[QuestionsSpec] = []

    def conduct(_kind: object, spec: QuestionsSpec, **_: Any) -> None:
        specs.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", conduct)
    monkeypatch.chdir(data_file.parent)
    words = ["data", "questions", data_file.name, "--model", str(model_folder), "--to", "q.jsonl"]
    assert cli.main([*words, "--number", "5", "--seed", "4", "--overwrite"]) == 5
    assert "The questions so far are kept in" in capsys.readouterr().err
    (spec,) = specs
    assert [each.path for each in spec.run.data.sources] == [str(data_file)]
    assert (spec.run.model.path, spec.target) == (str(model_folder), str(data_file.parent / "q.jsonl"))
    assert (spec.number, spec.seed, spec.overwrite) == (5, 4, True)
    cli.main(words)
    assert (specs[1].number, specs[1].seed, specs[1].overwrite) == (3, 0, False)


def test_specs_survive_their_files() -> None:
    run = RunSpec()
    run.data.sources = [SourceSpec(path="/a/b.pdf")]
    asks, cuts = QuestionsSpec(run, AbsolutePath("/q.jsonl"), 2, 3, True), PassagesSpec(run, AbsolutePath("/m"), 400)
    assert QUESTIONS.spec_from(json.loads(json.dumps(QUESTIONS.spec_values(asks)))) == asks
    assert PASSAGES.spec_from(json.loads(json.dumps(PASSAGES.spec_values(cuts)))) == cuts
    assert note_path(Path("/a/q.jsonl")) == Path("/a/.q.jsonl.unfinished")


def test_what_was_stopped_says_how_far_it_is(tmp_path: Path) -> None:
    target = tmp_path / "q.jsonl"
    assert begun(target) is None
    note_path(target).write_text('{"next": 4, "total": 10, "counts": {"rows": 9}}')
    assert begun(target) == Begun(9, 4, 10)
    note_path(target).write_text('{"next": 4, "counts": {"rows": 9}}')
    assert begun(target) is None, "an earlier version wrote it"


def test_progress_tells_passages_and_time(capsys: Capture) -> None:
    progress = terminal.Progress()
    data = {"done_bytes": 4, "total_bytes": 10, "questions": 11, "passages_per_s": 0.125}
    progress.show(Event(1, 100.0, "progress", {**data, "remaining_s": 48.0}))
    progress.show(Event(2, 101.0, "progress", {**data, "done_bytes": 10, "remaining_s": 0.0}))
    progress.close()
    assert capsys.readouterr().out == (
        "4 of 10 passages  11 questions  7.5 passages/min  48 s left\n"
        "10 of 10 passages  11 questions  7.5 passages/min\n"
    )


def test_a_set_that_a_model_wrote_is_marked(home: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answer": "Me.", "synthetic": True}) + "\n", encoding="utf-8")
    assert cli.main(["data", "add", str(path), "--name", "mine"]) == 0
    assert data_library.find("mine").is_synthetic
    capsys.readouterr()
    cli.main(["data", "list"])
    assert "prompt-completion, synthetic" in capsys.readouterr().out
    cli.main(["data", "list", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["synthetic"] is True
    assert home.is_dir()
