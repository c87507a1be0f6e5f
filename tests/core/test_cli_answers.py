"""`tunesmith data answers`: what is asked for, what came of it, and what stays when it is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.answers import ANSWERS, PROMPTS, AnswersSpec, AskedSpec
from tunesmith_core.spec import RunSpec

Capture = pytest.CaptureFixture[str]

ANSWER = {"path": "/a/q.jsonl", "prompts": 1300, "rows": 1200, "left_out": 2, "silent": 0, "unread": 3, "empty": 1}


def test_what_was_written_is_told(
    fake_engine: Callable[[dict[str, Any]], None], data_file: Path, model_folder: Path, capsys: Capture
) -> None:
    words = ["data", "answers", str(data_file), "--model", str(model_folder), "--to", "/a/q.jsonl"]
    fake_engine({"write-answers": ANSWER})
    assert cli.main(words) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "Answers written: 1,200. Prompts: 1,300. They are in /a/q.jsonl"
    for note in (
        "Rows without a prompt of their own that were left out: 2",
        "Answers that were cut at the longest length and left out: 3",
        "Empty answers that were left out: 1",
        "review them first",
    ):
        assert note in told.err
    assert "without room" not in told.err
    assert "objective kd" not in told.err
    assert cli.main([*words, "--logprobs"]) == 0
    assert "With the objective kd" in capsys.readouterr().err
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ANSWER


def test_what_is_asked_for_is_what_was_named(
    data_file: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    specs: list[AnswersSpec] = []

    def conduct(_kind: object, spec: AnswersSpec, **_: Any) -> None:
        specs.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", conduct)
    target = str(data_file.parent / "q.jsonl")
    more = ["--to", target, "--max-tokens", "99", "--overwrite", "--logprobs"]
    cli.main(["data", "answers", str(data_file), "--model", str(model_folder), *more])
    assert f"The answers so far are kept in {target}" in capsys.readouterr().err
    (spec,) = specs
    assert (spec.target, spec.most_tokens, spec.overwrite, spec.keeps_logprobs) == (target, 99, True, True)
    assert spec.run.model.path == str(model_folder)
    assert AnswersSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_prompts_are_read_within_limits() -> None:
    spec = AskedSpec(RunSpec())
    assert AskedSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert PROMPTS.limits is not None
    assert ANSWERS.limits is None
    assert AnswersSpec(RunSpec(), AbsolutePath("/a")).most_tokens == 512
