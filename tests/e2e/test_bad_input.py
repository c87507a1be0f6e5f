"""Bad input at the front door: refused before training, with code, cause and next step, and nothing written elsewhere.

The window calls the same `launch.start`; its words are tested with the Train page.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny_model import write_chats
from tunesmith_core import environments
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run

Spec = dict[str, Any]  # Any: JSON values
CHAT = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]}


def missing_model(spec: Spec, folder: Path) -> None:
    spec["model"]["path"] = str(folder / "nowhere")


def cut_model(spec: Spec, folder: Path) -> None:
    weights = Path(spec["model"]["path"]) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def pickle_model(spec: Spec, folder: Path) -> None:
    model = Path(spec["model"]["path"])
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def no_chat_template(spec: Spec, folder: Path) -> None:
    model = Path(spec["model"]["path"])
    (model / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((model / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (model / "tokenizer_config.json").write_text(json.dumps(config))


def missing_data(spec: Spec, folder: Path) -> None:
    spec["data"]["path"] = str(folder / "nowhere.jsonl")


def empty_data(spec: Spec, folder: Path) -> None:
    Path(spec["data"]["path"]).write_text("")


def broken_line(spec: Spec, folder: Path) -> None:
    Path(spec["data"]["path"]).write_text(json.dumps(CHAT) + "\n" + json.dumps(CHAT)[:-3] + "\n")


def missing_column(spec: Spec, folder: Path) -> None:
    rows = [{"question": "Who?", "answer": "Me."}, {"question": "Why?"}]
    Path(spec["data"]["path"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec["data"] |= {"format": "prompt-completion", "columns": {"prompt": "question", "completion": "answer"}}


def missing_parquet_column(spec: Spec, folder: Path) -> None:
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"question": ["Who?"], "reply": ["Me."]}), path)
    spec["data"] |= {"path": str(path), "format": "prompt-completion"}
    spec["data"]["columns"] = {"prompt": "question", "completion": "answer"}


def nothing_trained(spec: Spec, folder: Path) -> None:
    long_question = {"role": "user", "content": "Why? " * 50}
    row = {"messages": [long_question, {"role": "assistant", "content": "Because."}]}
    Path(spec["data"]["path"]).write_text((json.dumps(row) + "\n") * 3)
    spec["data"]["context_length"] = 16


def newer_spec(spec: Spec, folder: Path) -> None:
    spec["version"] = 99


def rank_zero(spec: Spec, folder: Path) -> None:
    spec["method"] = {"rank": 0}


def wordy_learning_rate(spec: Spec, folder: Path) -> None:
    spec["optimizer"] = {"learning_rate": "abc"}


def unknown_module(spec: Spec, folder: Path) -> None:
    spec["method"] = {"target_modules": ["no_such_layer"]}


CASES: list[tuple[Callable[[Spec, Path], None], str, str]] = [
    (missing_model, "model-files-missing-or-corrupt", "nowhere"),
    (cut_model, "model-files-missing-or-corrupt", "model.safetensors"),
    (pickle_model, "model-pickle-refused", "pytorch_model.bin"),
    (no_chat_template, "dataset-chat-template-missing", "chat template"),
    (missing_data, "dataset", "nowhere.jsonl"),
    (empty_data, "dataset-empty", "rows.jsonl"),
    (broken_line, "dataset-parse-error", "line 2"),
    (missing_column, "dataset-column-missing", "line 2"),
    (missing_parquet_column, "dataset-column-missing", "answer"),
    (nothing_trained, "no-trained-tokens", ""),
    (newer_spec, "spec-too-new", "99"),
    (rank_zero, "spec-invalid", "adapter.rank"),
    (wordy_learning_rate, "spec-invalid", "optimizer.learning_rate"),
    (unknown_module, "lora-target-modules-missing", "no_such_layer"),
]


@pytest.fixture
def spec(training_home: Path, tiny_model: Path, tmp_path: Path) -> Spec:
    """A good spec on copies that a test may damage."""
    model = shutil.copytree(tiny_model, tmp_path / "model")
    data = write_chats(tmp_path / "rows.jsonl", 4)
    return {
        "version": 1,
        "model": {"path": str(model)},
        "data": {"path": str(data), "context_length": 64},
        "schedule": {"max_steps": 1},
        "evaluation": {"percent": 0},
        "hardware": {"device": "cpu"},
    }


def train(spec: Spec, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `tunesmith train` on a spec."""
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    command = environments.own_command("tunesmith_core", "train", str(path))
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=folder)


@pytest.mark.parametrize(("spoil", "code", "place"), CASES, ids=[case[0].__name__ for case in CASES])
def test_bad_input_is_refused_by_name(
    spec: Spec, tmp_path: Path, training_home: Path, spoil: Callable[[Spec, Path], None], code: str, place: str
) -> None:
    spoil(spec, tmp_path)
    before = {path for path in tmp_path.rglob("*") if training_home not in path.parents}

    done = train(spec, tmp_path)

    assert done.returncode == 2, done.stderr
    assert f"error[{code}" in done.stderr
    assert place in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for run in (training_home / "runs").glob("*"):
        events = read_journal(Run(run).journal_path)
        assert not [event for event in events if event.type == "step"], "it was refused after training had begun"
        assert not (run / "adapter").exists()
    after = {path for path in tmp_path.rglob("*") if training_home not in path.parents}
    assert after - before <= {tmp_path / "spec.json"}


def test_read_only_data_root_is_refused(spec: Spec, tmp_path: Path, training_home: Path) -> None:
    runs = training_home / "runs"
    if os.geteuid() == 0:
        # The superuser may write anywhere, but not into a file.
        runs.write_text("not a folder")
    else:
        runs.mkdir(mode=0o555)
    done = train(spec, tmp_path)
    assert done.returncode in (2, 3), done.stderr
    assert "error[permission-or-antivirus]" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_full_disk_is_refused(spec: Spec, tmp_path: Path, training_home: Path) -> None:
    """On a volume of 8 MiB nothing is started."""
    small = training_home / "runs"
    small.mkdir()
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    command = " ".join(f"'{part}'" for part in environments.own_command("tunesmith_core", "train", str(path)))
    script = f"mount -t tmpfs -o size=8m tmpfs '{small}' && exec {command}"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "error[disk-full]" in done.stderr
    assert "hint: " in done.stderr
    assert not list(small.iterdir())
