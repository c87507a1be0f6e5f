"""GGUF files on a computer without memory to compare them with the trained model."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.exports import export, fill_disk, run_for_llama_cpp
from tests.engine.test_export_gguf import MUTANTS
from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.protocol import read_journal
from tunesmith_engine.export.gguf import writing

pytestmark = pytest.mark.usefixtures("home", "few_prompts", "unproven")


def test_without_memory_for_the_proof_the_file_says_so(tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path)
    assert export(run, tmp_path / "out", "gguf", type_name="f16")["proof"] is None
    assert "was not compared" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    events = read_journal(paths.tmp_dir() / "operation-out" / "events.jsonl")
    assert [event.data["code"] for event in events if event.type == "warning"] == ["memory-full"]


@pytest.mark.parametrize("name", ["other words", "another template"])
def test_without_memory_for_the_proof_texts_are_still_compared(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(TunesmithError) as differs:
        export(run_for_llama_cpp(tmp_path), tmp_path / "out", "gguf")
    assert differs.value.code == "export-differs"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["gguf", "gguf-adapter"])
def test_without_memory_for_the_proof_llama_cpp_still_loads_the_file(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = writing.sources
    monkeypatch.setattr(
        writing, "sources", lambda *given: {name: source for name, source in own(*given).items() if "norm" not in name}
    )
    with pytest.raises(TunesmithError, match=r"llama\.cpp can't load the file"):
        export(run_for_llama_cpp(tmp_path), tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def fill(tmp_path: Path) -> Callable[..., int]:
    """Export to a disk that is full from some write on, without the proof, which writes nothing large."""
    run, folder = run_for_llama_cpp(tmp_path), tmp_path / "exports"
    folder.mkdir()
    return lambda choose: fill_disk(run, folder / "out", choose, kind="gguf")


def test_a_full_disk_is_named_at_some_writes(fill: Callable[..., int]) -> None:
    chooser = random.Random(0)
    fill(lambda count: [*sorted(chooser.sample(range(1, count), 7)), count])


@pytest.mark.long
def test_a_full_disk_is_named_at_every_write(fill: Callable[..., int], capsys: Any) -> None:
    num_calls = fill(lambda count: list(range(1, count + 1)))
    with capsys.disabled():
        sys.stderr.write(f"a full disk at each of {num_calls} writes of a GGUF file\n")
