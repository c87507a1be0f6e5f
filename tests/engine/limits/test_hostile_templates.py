"""A chat template may do what it likes: it ends soon, by a code with a next step, and reaches nothing outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.engine.limits.hostile_templates import ALL, CANARY, QUICK
from tunesmith_core.error_codes import CODES
from tunesmith_core.operations.limits import Watch

REPOSITORY = Path(__file__).resolve().parents[3]
SECRET = "tunesmith-canary-value"
MAX_CPU_S = 3.0
HARMLESS = ("numbers", "escapes", "refusals", "texts", "times", "scanners", "memory", "recursion")
"""Families of which some templates write a text after all."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is limited by the system of Linux")


def sweep(folder: Path, model: Path, templates: list[str]) -> dict[int, dict[str, Any]]:
    """Try templates in children, each of which lasts until a template has to be ended; return what became of each."""
    (folder / "templates.json").write_text(json.dumps(templates), encoding="utf-8")
    shutil.copytree(model, folder / "model")
    results: dict[int, dict[str, Any]] = {}
    engine, environment = str(REPOSITORY / "engine"), os.environ | {"TUNESMITH_CANARY": SECRET}
    environment |= {"PYTHONPATH": os.pathsep.join([engine, str(REPOSITORY)]), "TOKENIZERS_PARALLELISM": "false"}
    while len(results) < len(templates):
        first = len(results)
        (folder / "portion").unlink(missing_ok=True)
        (folder / "results.jsonl").unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.engine.limits.sweep", str(folder), str(first)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, cwd=folder) as process:
            watch = Watch(folder / "portion", process.pid)
            while process.poll() is None and not watch.is_over():
                time.sleep(0.02)
            process.kill()
            output = process.stderr.read().decode() if process.stderr else ""
        if (folder / "results.jsonl").exists():
            for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
                result = json.loads(line)
                results[result["number"]] = result
        if len(results) < len(templates):
            portion = watch.late or watch.portion()
            assert portion, output
            error = watch.late.over_time() if watch.late else portion.crashed(process.returncode, output)
            assert f"line {len(results) + 1}:" in error.message
            told = {"code": error.code, "message": error.message, "hint": error.hint}
            results[len(results)] = {**told, "cpu_s": portion.cpu_s, "touched": [], "ended": True}
    return results


def check(folder: Path, model: Path, chosen: list[tuple[str, str]]) -> Counter[str]:
    """Try templates; return how many ended how."""
    Path(CANARY).unlink(missing_ok=True)
    results = sweep(folder, model, [template for _, template in chosen])
    counts: Counter[str] = Counter()
    for number, (family, template) in enumerate(chosen):
        result = results[number]
        shown = f"{family}: {template[:100]}: {result}"
        assert result["cpu_s"] <= MAX_CPU_S, shown
        assert result["touched"] == [], shown
        assert SECRET not in json.dumps(result), shown
        if "code" in result:
            assert result["code"] in CODES, shown
            assert result["code"] != "bug", shown
            assert result["hint"], shown
            # Where there is no template at all, no row is at fault.
            named = f"line {number + 1}" in result["message"]
            assert named or result["code"] == "dataset-chat-template-missing", shown
        else:
            assert family in HARMLESS, shown
        counts["ended" if "ended" in result else result.get("code", "a text")] += 1
    assert not Path(CANARY).exists()
    return counts


def test_a_sample_of_hostile_templates(tiny_model: Path, tmp_path: Path) -> None:
    counts = check(tmp_path, tiny_model, QUICK)
    assert counts["ended"] >= 1
    assert counts["foreign-limit"] >= 1
    assert counts["dataset-parse-error"] + counts["model-files-missing-or-corrupt"] >= 3


@pytest.mark.long
def test_all_hostile_templates(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = check(tmp_path, tiny_model, ALL)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(ALL)} hostile templates: {dict(counts)}\n")
    assert len(ALL) >= 200
    assert counts["ended"] >= 20


def test_templates_run_in_the_sandbox_and_see_plain_values(tiny_model: Path) -> None:
    from transformers.utils import chat_template_utils

    compiled = chat_template_utils._compile_jinja_template("{{ messages }}")
    assert isinstance(compiled.environment, ImmutableSandboxedEnvironment)
    assert tuple(map(int, jinja2.__version__.split(".")[:3])) >= (3, 1, 6)
