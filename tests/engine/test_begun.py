"""A preparation that was stopped continues behind the batches that are done, and is none the different for it."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.test_tokenising import rendered
from tests.tiny_model import write_chats
from tunesmith_core import files, paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.kinds.engine import PREPARE, PrepareSpec
from tunesmith_core.protocol import read_journal
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data import begun, tokenising
from tunesmith_engine.data.begun import NAME, Begun
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.rows_file import LENGTHS, QUESTIONS
from tunesmith_engine.data.rows_file import NAME as ROWS
from tunesmith_engine.data.tokenising import Rendered, Tokeniser

NUM_ROWS = 40

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenising, "BATCH_ROWS", 4)
    monkeypatch.setattr(begun, "LEAST_FREE_BYTES", 0)


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows went through the tokenizer so far."""
    real, counted = Tokeniser._encode, [0]

    def encode(tokeniser: Tokeniser, group: list[Rendered]) -> Any:
        counted[0] += len(group)
        return real(tokeniser, group)

    monkeypatch.setattr(Tokeniser, "_encode", encode)
    return counted


def rows_of(tokenizer: PreTrainedTokenizerBase, done: Begun, num_rows: int = NUM_ROWS, **data: Any) -> list[Any]:
    renderer = Renderer(tokenizer, DataSpec(**data))
    return [
        (row.example.input_ids.tolist(), row.example.labels.tolist(), row.text, row.ends.tolist(), row.question)
        for row in done.examples(rendered(renderer, num_rows), renderer)
    ]


def stopped_after(tokenizer: PreTrainedTokenizerBase, folder: Path, num_rows: int) -> None:
    """Begin and stop once so many rows are done."""
    renderer = Renderer(tokenizer, DataSpec())
    with Begun(folder) as done:
        examples = done.examples(rendered(renderer, NUM_ROWS), renderer)
        assert len(list(islice(examples, num_rows))) == num_rows
        examples.close()  # type: ignore[attr-defined]


def test_what_is_done_is_not_tokenized_again(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, tokenized: list[int]
) -> None:
    expected = rows_of(tokenizer, Begun())
    stopped_after(tokenizer, tmp_path / "part", 20)
    tokenized[0] = 0
    with Begun(tmp_path / "part") as done:
        assert rows_of(tokenizer, done) == expected
        assert tokenized == [NUM_ROWS - 20]
        done.remove()
    assert not (tmp_path / "part").exists()


@pytest.mark.parametrize("at", ["rows", "hash", "length", "content", "cut"])
def test_damage_costs_the_batches_behind_it(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, tokenized: list[int], at: str
) -> None:
    expected = rows_of(tokenizer, Begun())
    stopped_after(tokenizer, tmp_path / "part", 20)
    path = tmp_path / "part" / NAME
    content = bytearray(path.read_bytes())
    size = begun._HEAD.size
    first = size + int.from_bytes(content[size - 8 : size], "little")
    if at == "cut":
        del content[-1]
    else:
        content[first + {"rows": 0, "hash": 32, "length": size - 2, "content": size}[at]] ^= 0xFF
    path.write_bytes(content)
    tokenized[0] = 0
    for num_tokenized in (NUM_ROWS - (16 if at == "cut" else 4), 0):
        with Begun(tmp_path / "part") as done:
            assert rows_of(tokenizer, done) == expected
        assert tokenized == [num_tokenized]
        tokenized[0] = 0


def test_other_rows_take_nothing_of_it(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, tokenized: list[int]
) -> None:
    stopped_after(tokenizer, tmp_path / "part", 20)
    tokenized[0] = 0
    expected = rows_of(tokenizer, Begun(), train_on="all")
    with Begun(tmp_path / "part") as done:
        assert rows_of(tokenizer, done, train_on="all") == expected
    assert tokenized == [2 * NUM_ROWS]


def test_a_second_process_does_without(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, tokenized: list[int]
) -> None:
    stopped_after(tokenizer, tmp_path / "part", 20)
    tokenized[0] = 0
    with Begun(tmp_path / "part"), Begun(tmp_path / "part") as second:
        rows_of(tokenizer, second)
        second.remove()
    assert tokenized == [NUM_ROWS]
    assert (tmp_path / "part" / NAME).exists()


def test_a_disk_that_fails_ends_only_the_keeping(
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    expected = rows_of(tokenizer, Begun())
    (tmp_path / "file").write_text("in the way")
    with Begun(tmp_path / "file") as done:
        assert rows_of(tokenizer, done) == expected
    monkeypatch.setattr(begun, "LEAST_FREE_BYTES", 1 << 62)
    with Begun(tmp_path / "full") as done:
        assert rows_of(tokenizer, done) == expected
    assert (tmp_path / "full" / NAME).read_bytes() == b""
    assert not recwarn.list, "the file was closed, and not left to be"

    def refuse(_path: Path) -> int:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(files, "free_bytes", refuse)
    with Begun(tmp_path / "broken") as done:
        assert rows_of(tokenizer, done) == expected


def test_data_that_can_not_be_trained_on_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TunesmithError), Begun(tmp_path / "part"):
        raise TunesmithError("dataset-parse-error", "a row")
    assert not (tmp_path / "part").exists()


def begin(folder: Path, spec: RunSpec) -> subprocess.Popen[bytes]:
    """Begin to prepare the data of a run in a folder, as its child does."""
    operation = Operation(folder)
    files.private_folder(operation.control_path)
    files.atomic_write_json(folder / "operation.json", {"version": 1, "kind": PREPARE.name})
    files.atomic_write_json(operation.spec_path, PREPARE.spec_values(PrepareSpec(spec, spec.model.path)))
    return subprocess.Popen([sys.executable, "-m", "tunesmith_engine", "operation", str(folder)])


def made(folder: Path) -> list[Any]:
    (result,) = [event.data for event in read_journal(Operation(folder).journal_path) if event.type == "result"]
    return [result["answer"], *((folder / name).read_bytes() for name in (ROWS, LENGTHS, QUESTIONS))]


@pytest.mark.parametrize("num_kills", [2, pytest.param(30, marks=pytest.mark.long)])
def test_whatever_the_moment_of_a_kill_the_rows_are_the_same(
    tiny_spec: Callable[..., RunSpec], tmp_path: Path, num_kills: int
) -> None:
    spec = tiny_spec(evaluation={"percent": 10})
    write_chats(Path(spec.data.sources[0].path), 6000)
    assert begin(tmp_path / "whole", spec).wait() == 0
    expected, chance = made(tmp_path / "whole"), random.Random(14)
    (entry,) = (paths.cache_dir() / "tokens").iterdir()
    files.remove(entry / "prepared.json")
    for number in range(num_kills):
        child = begin(tmp_path / f"killed-{number}", spec)
        part = paths.cache_dir() / "tokens" / f".{entry.name}.begun"
        before = size_of(part)
        while child.poll() is None and size_of(part) == before:
            time.sleep(0.001)
        time.sleep(chance.random() / 4)
        child.kill()
        child.wait()
        # One that was done just before would leave nothing to continue.
        (entry / "prepared.json").unlink(missing_ok=True)
    assert begin(tmp_path / "last", spec).wait() == 0
    assert made(tmp_path / "last") == expected
    assert not part.exists()


def size_of(part: Path) -> int:
    try:
        return (part / NAME).stat().st_size
    except OSError:
        return 0
