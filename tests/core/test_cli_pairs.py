"""What the command line tells of runs that learn from preference pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, cli_runs, cli_specs, files
from tunesmith_core.preferences import METRICS
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]
PREFERRED = dict(zip(METRICS, (0.2, -1.3, 1.5, 0.94, -50.0, -60.0), strict=True))


def test_a_run_of_pairs_tells_how_many_are_told_apart(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_engine: Script
) -> None:
    spec, path = make_spec("c").to_dict(), tmp_path / "spec.json"
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"prompt": "Who?", "chosen": "Me.", "rejected": "You."}), encoding="utf-8")
    spec["objective"], spec["data"]["sources"][0]["path"] = {"kind": "dpo"}, str(pairs)
    files.atomic_write_json(path, spec)
    untrained = dict.fromkeys(PREFERRED, 0.0)
    fake_engine(
        {
            "*": [
                ["hello"], ["event", "setup", {"total_steps": 1}],
                ["event", "eval", {"step": 0, "loss": 0.7, **untrained}],
                ["event", "step", {"step": 1, "loss": 0.6, **PREFERRED, "reward_accuracy": 0.75}],
                ["event", "eval", {"step": 1, "loss": 0.5, **PREFERRED}], ["result", "finished"],
            ]
        }
    )  # fmt: skip
    assert cli.main(["train", str(path)]) == 0
    out = capsys.readouterr().out
    for words in (
        "step 0: evaluation loss 0.700\n",
        "step 1/1  loss 0.600  better answer preferred 75%  margin 1.50\n",
        "step 1: evaluation loss 0.500  better answer preferred 94%  margin 1.50\n",
    ):
        assert words in out
    assert cli.main(["show", "c-01"]) == 0
    assert "held-out pairs:  better answer preferred 94%  margin 1.50\n" in capsys.readouterr().out
    assert cli.main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["preferences"] == PREFERRED


def test_a_run_in_progress_tells_it_when_it_is_asked(
    make_spec: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("e"))
    monkeypatch.setattr(cli_runs, "_ask", lambda *_: Event(1, 0.0, "eval", {"loss": 0.5, "step": 3, **PREFERRED}))
    monkeypatch.setattr(Run, "is_supervised", lambda _run: True)
    assert cli.main(["evaluate", run.id]) == 0
    assert capsys.readouterr().out == "loss 0.500 at step 3\nbetter answer preferred 94%  margin 1.50\n"


def test_a_preview_says_which_answer_is_the_worse_one(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"place": "a.jsonl, line 2", "line": 2, "num_tokens": 9, "num_trained_tokens": 3}
    rows = [row | {"segments": [], "answer": answer} for answer in ("better", "worse")]
    assert cli_specs.show_preview({"rows": rows}, as_json=False) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line] == [
        "--- line 2: 3 of 9 tokens are trained on",
        "--- line 2, worse answer: 3 of 9 tokens are trained on",
    ]
