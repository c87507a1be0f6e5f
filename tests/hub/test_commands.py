"""The command line with the real operations: search, plan, download, and a run whose spec names a hub id."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hub.loopback import Fault, LoopbackHub, repository_of
from tests.real_runs import point_at_training_environment
from tests.tiny_model import write_chats
from tunesmith_core import cli, downloads
from tunesmith_core import hub as asking
from tunesmith_core.model_folder import hub_folder
from tunesmith_core.runs import iter_runs
from tunesmith_core.spec import RunSpec

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def at_the_loopback(hub: LoopbackHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at_training_environment(home)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main(["models", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_search_plan_get_verify(hub: LoopbackHub, whole_model: Path, home: Path, capsys: Any) -> None:
    hub.repositories["org/gated"] = repository_of(whole_model, gated="auto", token=TOKEN)
    assert [each["id"] for each in answer(capsys, "search", "gated")] == ["org/gated"]
    plan = answer(capsys, "get", "org/gated", "--dry-run")
    assert plan["total_bytes"] == plan["missing_bytes"] > 100_000
    assert plan["model"]["context_length"] == 512
    assert cli.main(["models", "get", "org/gated"]) == 0
    assert capsys.readouterr().out.strip().endswith(str(hub_folder("org/gated")))
    assert answer(capsys, "verify", "org/gated")["changed"] == []
    (listed,) = answer(capsys, "list")["models"]
    assert (listed["name"], listed["licence"], listed["commit"]) == ("org/gated", "apache-2.0", plan["model"]["commit"])
    holding = [path for path in home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holding == [], "the token is in no file of ours"
    assert cli.main(["models", "get", "org/nothing"]) == 2
    assert "The hub has no org/nothing" in capsys.readouterr().err


def test_a_hub_that_is_busy_is_waited_for(hub: LoopbackHub, capsys: Any) -> None:
    hub.statuses = [(503, {})]
    assert cli.main(["models", "get", "org/whole", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["code"] for event in events if event["type"] == "waiting"] == ["hub-busy"]


def test_a_hub_id_in_a_spec_is_downloaded_before_the_run(home: Path, tmp_path: Path, capsys: Any) -> None:
    spec = RunSpec(name="from the hub")
    spec.model.path, spec.hardware.devices = "org/whole", ["cpu"]
    spec.data.sources[0].path = str(write_chats(tmp_path / "chats.jsonl", 8))
    spec.schedule.max_steps, spec.evaluation.percent = 2, 0.0
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    assert cli.main(["train", str(tmp_path / "spec.json"), "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds.index("progress") < kinds.index("setup")
    assert hub_folder("org/whole").is_dir()
    (run,) = iter_runs()
    assert run.load_spec().model.path == "org/whole"


def test_a_cancelled_operation_is_continued(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault = lambda name, _start: Fault("stall", 8192) if name == "model.safetensors" else None
    cancel = threading.Event()
    served = threading.Thread(target=lambda: (_until_served(hub), cancel.set()))
    served.start()
    with pytest.raises(KeyboardInterrupt):
        asking.get("org/whole", cancel=cancel)
    served.join()
    (begun,) = downloads.unfinished()
    assert 0 < begun.done_bytes() < begun.total_bytes
    assert not downloads.is_going(begun)
    hub.fault = lambda _name, _start: None
    assert asking.get("org/whole") == begun.folder
    starts = [start for name, start in hub.requests if name == "model.safetensors"]
    assert starts[-1] > 0


def _until_served(hub: LoopbackHub) -> None:
    # A thread that never ended would keep pytest from ending too.
    end_s = time.monotonic() + 60
    while hub.served["model.safetensors"] < 8192 and time.monotonic() < end_s:
        os.sched_yield()
