"""A second start with the same data takes its tokens from the cache, and with anything else it does not."""

from __future__ import annotations

import dataclasses
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.desk.checking import chat, host_in, write_lines
from tests.engine.prepared import conduct_here
from tests.tiny_model import write_chats
from tunesmith_core import paths
from tunesmith_core.operations.kinds.engine import PrepareSpec
from tunesmith_core.spec import RunSpec
from tunesmith_engine import operations, preparation
from tunesmith_engine.data import rows_file, token_cache
from tunesmith_engine.data.rows_file import NAME, read_rows
from tunesmith_engine.methods import sft

MakeSpec = Callable[..., RunSpec]

pytestmark = pytest.mark.usefixtures("home", "token_cache_in_use")


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, Any], list[Any], bool]]:
    """Prepare data as the child does; return its answer, its rows, and whether they were tokenized."""
    calls: list[object] = []
    real = sft.METHOD.prepare

    def prepare(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(type(sft.METHOD), "prepare", lambda _method, *arguments: prepare(*arguments))

    def run(spec: RunSpec, folder: Path | None = None) -> tuple[dict[str, Any], list[Any], bool]:
        calls.clear()
        shutil.rmtree(tmp_path / "operation", ignore_errors=True)
        with host_in(tmp_path / "operation") as host:
            answer = operations.prepare(host, PrepareSpec(spec, str(folder or spec.model.path)))
        rows = [(row.input_ids.tolist(), row.labels.tolist()) for row in read_rows(tmp_path / "operation")]
        return answer, rows, bool(calls)

    return run


Prepared = Callable[..., tuple[dict[str, Any], list[Any], bool]]


def test_a_second_start_gets_the_same_rows_without_tokenizing(tiny_spec: MakeSpec, prepared: Prepared) -> None:
    spec = tiny_spec(evaluation={"percent": 25, "sample_prompts": ["Who?"]})
    answer, rows, is_new = prepared(spec)
    assert is_new
    assert prepared(spec) == (answer, rows, False)
    spec.optimizer.learning_rate, spec.evaluation.sample_prompts = 0.5, ["Why?", "Who?"]
    again, same_rows, is_new = prepared(spec)
    assert (same_rows, is_new, list(again["prompts"])) == (rows, False, ["Why?", "Who?"])


def test_sentences_of_notes_keep_their_templates(tiny_spec: MakeSpec, prepared: Prepared) -> None:
    spec = tiny_spec()
    write_lines(Path(spec.data.sources[0].path), [chat("What is <|im_end|>?", "A token.")])
    answer, _, _ = prepared(spec)
    again, _, is_new = prepared(spec)
    assert not is_new
    assert answer["notes"]
    templates = {code: note.template for code, note in answer["notes"].items()}
    assert {code: note.template for code, note in again["notes"].items()} == templates


def test_whatever_decides_the_tokens_makes_them_new(
    tiny_spec: MakeSpec, tiny_model: Path, prepared: Prepared, tmp_path: Path
) -> None:
    spec = tiny_spec(evaluation={"percent": 25})
    assert prepared(spec)[2]
    model = shutil.copytree(tiny_model, tmp_path / "copy")
    assert not prepared(spec, model)[2]
    changes: list[Callable[[], object]] = [
        lambda: write_chats(Path(spec.data.sources[0].path), 20),
        lambda: setattr(spec.data, "system_prompt", "Be kind."),
        lambda: setattr(spec.data, "context_length", 100),
        lambda: setattr(spec.model, "chat_template", "chatml"),
        lambda: setattr(spec.schedule, "seed", 7),
        lambda: setattr(spec.evaluation, "percent", 30.0),
        lambda: setattr(spec.evaluation, "group_column", "messages"),
        lambda: setattr(spec.data.sources[0], "most_rows", 12),
        lambda: (model / "chat_template.jinja").write_text((model / "chat_template.jinja").read_text() + "{# #}"),
        lambda: setattr(token_cache, "VERSION", token_cache.VERSION + 1),
    ]
    for change in changes:
        change()
        assert prepared(spec, model)[2]
        assert not prepared(spec, model)[2]
    token_cache.VERSION -= 1


def test_other_weights_have_an_entry_of_their_own(tiny_spec: MakeSpec, prepared: Prepared, tmp_path: Path) -> None:
    spec = tiny_spec(evaluation={"percent": 0})
    spec.data.sources.append(dataclasses.replace(spec.data.sources[0], path=str(write_chats(tmp_path / "b.jsonl", 8))))
    found = []
    for weights in ((0.0, 0.0), (1.0, 1.0), (3.0, 1.0)):
        for source, weight in zip(spec.data.sources, weights, strict=True):
            source.weight = weight
        answer, _, is_new = prepared(spec)
        assert is_new
        assert prepared(spec)[0] == answer
        found.append([each["num_epoch_rows"] for each in answer["sources"]])
    assert found == [[16, 8], [12, 12], [18, 6]]


def test_a_template_that_writes_the_date_makes_new_tokens_every_day(
    tiny_spec: MakeSpec, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    real = token_cache.datetime.datetime

    for day in (1, 2):

        class Day(real):  # type: ignore[misc, valid-type]
            @classmethod
            def now(cls, tz: object = None, _day: int = day) -> Any:  # noqa: ARG003
                return real(2026, 11, _day)

        monkeypatch.setattr(token_cache.datetime, "datetime", Day)
        keys.append([token_cache.key_of(tiny_spec(), tiny_model, text) for text in ("{{ x }}", "{{ strftime_now() }}")])
    assert keys[0][0] == keys[1][0]
    assert keys[0][1] != keys[1][1]


def test_a_damaged_entry_is_made_anew(tiny_spec: MakeSpec, prepared: Prepared) -> None:
    spec = tiny_spec()
    _, rows, _ = prepared(spec)
    (entry,) = (paths.cache_dir() / "tokens").iterdir()
    for damage in (lambda: (entry / NAME).write_bytes(b"x"), lambda: (entry / token_cache.ANSWER).write_text("{")):
        damage()
        assert prepared(spec)[1:] == (rows, True)
        assert prepared(spec)[1:] == (rows, False)


def test_a_folder_of_files_is_not_kept(tiny_spec: MakeSpec, prepared: Prepared, tmp_path: Path) -> None:
    spec = tiny_spec()
    folder = tmp_path / "set"
    folder.mkdir()
    shutil.move(spec.data.sources[0].path, folder / "rows.jsonl")
    spec.data.sources[0].path = str(folder)
    assert prepared(spec)[2]
    assert prepared(spec)[2]
    assert not (paths.cache_dir() / "tokens").exists()


def test_the_entries_that_were_not_used_for_longest_make_room(
    tiny_spec: MakeSpec, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = paths.cache_dir() / "tokens"
    spec = tiny_spec()
    sizes = []
    for number, length in enumerate((128, 120, 110)):
        spec.data.context_length = length
        known = set(folder.iterdir()) if folder.exists() else set()
        assert prepared(spec)[2]
        (new,) = set(folder.iterdir()) - known
        os.utime(new / token_cache.ANSWER, (number, number + 1))
        sizes.append(sum(path.stat().st_size for path in new.iterdir()))
    left = folder / ".left-by-a-crash"
    left.mkdir()
    os.utime(left, (1, 1))
    spec.data.context_length = 128
    assert not prepared(spec)[2]
    monkeypatch.setattr(token_cache, "MOST_BYTES", 3 * max(sizes) + 100)
    spec.data.context_length = 100
    assert prepared(spec)[2]
    assert not left.exists()
    for length, is_new in ((128, False), (110, False), (120, True)):
        spec.data.context_length = length
        assert prepared(spec)[2] == is_new


def test_without_room_nothing_is_kept(tiny_spec: MakeSpec, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny_spec()
    monkeypatch.setattr(token_cache, "LEAST_FREE_BYTES", 1 << 62)
    assert prepared(spec)[2]
    assert prepared(spec)[2]
    monkeypatch.setattr(token_cache, "LEAST_FREE_BYTES", 0)
    monkeypatch.setattr(token_cache, "MOST_BYTES", 10)
    assert prepared(spec)[2]
    assert prepared(spec)[2]


def test_how_far_tokenizing_is_reaches_the_run(
    tiny_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_file, "TELL_EVERY_ROWS", 5)
    monkeypatch.setattr(rows_file, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(preparation, "conduct", conduct_here)
    spec = tiny_spec()
    told: list[tuple[int, int]] = []

    def tell(fields: dict[str, Any]) -> None:
        assert (fields["unit"], fields["rows_per_s"] > 0) == ("rows", True)
        left = fields["total"] - fields["done"] if fields["total"] else 0
        assert fields["remaining_s"] == (left / fields["rows_per_s"] if left else None)
        told.append((fields["done"], fields["total"]))

    with preparation.Preparation(spec, tell) as begun:
        assert begun.data() is not None
    assert told == [(5, 16), (10, 16), (15, 16)]
    told.clear()
    shutil.move(spec.data.sources[0].path, tmp_path / "data.bin")
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.write(tmp_path / "data.bin", "rows.jsonl")
    spec.data.sources[0].path = str(tmp_path / "rows.zip")
    with preparation.Preparation(spec, tell) as begun:
        assert begun.data() is not None
    assert told == [(5, 0), (10, 0), (15, 0)]
