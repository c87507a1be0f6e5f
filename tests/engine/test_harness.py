"""Tasks of lm-evaluation-harness: asked of both models, row by row, with packages that stand elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import environments
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.protocol import read_journal
from tunesmith_engine.evaluation import harness

LM_EVAL = '''"""Stands for lm_eval: a task whose rows the adapter answers right."""


def simple_evaluate(model, tasks, task_manager, limit, bootstrap_iters):
    assert (bootstrap_iters, task_manager.include_path) == (0, None)
    if tasks == ["gone"]:
        raise KeyError("Spec 'gone' is not a registered task")
    if tasks == ["far"]:
        raise ConnectionError("Couldn't reach the Hub")
    if tasks == ["poor"]:
        raise ModuleNotFoundError("No module named 'langdetect'")
    if tasks == ["odd"]:
        raise ValueError("no split named x")
    right = float(model.model.adapter)
    rows = [
        {"doc_id": n, "filter": f, "metrics": ["acc", "loss", "ppl", "bleu"]}
        | {"acc": right if n else 0.0, "loss": 0.5, "ppl": 7.0, "bleu": (1, 2)}
        for n in reversed(range(limit))
        for f in ("none", "strict")
    ]
    better = {"acc": True, "loss": False, "ppl": True, "bleu": True}
    return {"samples": {tasks[0]: [] if tasks == ["empty"] else rows}, "higher_is_better": {tasks[0]: better}}
'''
MODULES = {
    "__init__": LM_EVAL,
    "tasks": "class TaskManager:\n    def __init__(self, include_path):\n        self.include_path = include_path\n",
    "models/__init__": "",
    "models/huggingface": "class HFLM:\n    def __init__(self, pretrained, tokenizer, batch_size):\n"
    "        self.model = pretrained\n",
}


class Model:
    """Knows whether its adapter is on."""

    adapter = True

    @contextlib.contextmanager
    def disable_adapter(self) -> Iterator[None]:
        self.adapter = False
        yield
        self.adapter = True


@pytest.fixture
def measured(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Measure tasks with packages as `tunesmith harness` leaves them; return figures and events."""
    folder = home / "envs" / f"harness-linux-py{sys.version_info[0]}{sys.version_info[1]}-1"
    python = environments.environment_python(folder)
    python.parent.mkdir(parents=True)
    python.touch()
    packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for name, text in MODULES.items():
        path = packages / "lm_eval" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (home / "envs" / environments.HARNESS_POINTER).write_text(folder.name)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def measure(tasks: str, **more: Any) -> tuple[list[dict[str, Any]], list[Any]]:
        spec = EvaluateSpec("run", harness=tasks, rows=20, **more)  # type: ignore[arg-type]
        with Host(Operation(tmp_path)) as host:
            found = harness.measured(host, spec, Model(), None)
        return found, [event for event in read_journal(tmp_path / "events.jsonl") if event.type == "warning"]

    yield measure
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        del sys.modules[name]


def test_both_models_are_asked_and_compared_row_by_row(measured: Any) -> None:
    found, warnings = measured(" mine ")
    assert [each["name"] for each in found] == ["mine: acc", "mine: acc (strict)"]
    assert (found[0]["before"], found[0]["after"], found[0]["gain"]["rows"]) == (0.0, 0.95, 20)
    assert 0.8 < found[0]["gain"]["low"] < 0.95 < found[0]["gain"]["high"] <= 1.0
    assert found[0]["p"] < 0.01
    assert warnings == []
    assert sys.path[-1].endswith("site-packages")


def test_figures_stand_in_the_order_of_the_rows() -> None:
    rows = [{"doc_id": n, "filter": "none", "metrics": ["acc"], "acc": n / 10} for n in (2, 0, 1)]
    result = {"samples": {"mine": rows}, "higher_is_better": {"mine": {"acc": True}}}
    assert harness.scores(result) == {("mine", "acc"): [0.0, 0.1, 0.2]}


def test_what_gives_nothing_to_compare_is_told(measured: Any) -> None:
    found, (warning,) = measured("empty")
    assert found == []
    assert warning.data["message"] == "empty gave no figure that can be compared."


@pytest.mark.parametrize(
    ("task", "code", "words"),
    [
        ("gone", "usage", "gone: Spec 'gone' is not a registered task."),
        ("far", "hub-offline", "The data of far can't be read: Couldn't reach the Hub."),
        ("poor", "environment-damaged", "poor can't be run: No module named 'langdetect'."),
        ("odd", "usage", "odd can't be run: no split named x."),
    ],
)
def test_what_is_wrong_with_a_task_is_said(measured: Any, task: str, code: str, words: str) -> None:
    with pytest.raises(TunesmithError) as caught:
        measured(task)
    assert (caught.value.code, caught.value.message) == (code, words)


def test_a_folder_of_tasks_must_be_there_and_the_packages_too(measured: Any, home: Path) -> None:
    with pytest.raises(TunesmithError, match="does not exist"):
        measured("mine", harness_tasks="/nowhere")
    (home / "envs" / environments.HARNESS_POINTER).unlink()
    with pytest.raises(TunesmithError) as caught:
        measured("mine")
    assert caught.value.code == "environment-missing"
