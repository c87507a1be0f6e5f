"""Data is prepared in a limited child: what is hostile ends it, by name; the rows are the same; a stop ends it soon."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.engine.conftest import events, result_of, train
from tests.engine.prepared import prepare
from tests.tiny_model import write_chats
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.engine import PREVIEW, PreviewSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.protocol import post_command
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine import preparation
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.preparation import Preparation, prompt_tokens

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is limited by the system of Linux")

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder that may be changed."""
    shutil.copytree(tiny_model, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def spec(tiny_spec: Callable[..., RunSpec], model: Path, home: Path) -> RunSpec:
    """A spec of that folder."""
    assert home.is_dir()
    spec = tiny_spec(evaluation={"percent": 25, "sample_prompts": ["Who?"]})
    spec.model.path = str(model)
    return spec


def with_template(model: Path, template: str) -> None:
    """Give a model folder another chat template."""
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")


def failure(spec: RunSpec) -> TunesmithError:
    """Why the data of a spec can't be prepared."""
    with pytest.raises(TunesmithError) as caught, Preparation(spec) as begun:
        begun.data()
    return caught.value


def test_the_child_prepares_the_same_rows(spec: RunSpec, model: Path) -> None:
    with Preparation(spec) as begun:
        assert begun.wait_for_tokenizer()
        data = begun.data()
    expected = prepare(spec, load_tokenizer(model))
    assert data is not None
    assert (data.tokens_hash(), data.held_out_hash()) == (expected.tokens_hash(), expected.held_out_hash())
    assert (data.stats, data.notes, data.pairs) == (expected.stats, expected.notes, expected.pairs)
    assert list(data.prompts) == ["Who?"]
    assert data.prompts["Who?"] == prompt_tokens(spec, model, "Who?", lambda: False)


def test_an_endless_template_is_ended_and_the_row_named(spec: RunSpec, model: Path) -> None:
    with_template(model, ENDLESS)
    error = failure(spec)
    assert error.code == "foreign-limit"
    assert "rows.jsonl, line 1: the chat template took longer than 2 s" in error.message


def test_a_template_that_takes_all_memory_is_named(spec: RunSpec, model: Path) -> None:
    with_template(model, "{{ 'a' * 10 ** 10 }}")
    error = failure(spec)
    assert error.code == "foreign-limit"
    assert "rows.jsonl, line 1: the chat template needed too much memory" in error.message


def test_an_endless_template_of_a_prompt_is_a_warning(
    spec: RunSpec, model: Path, new_run: Callable[[RunSpec], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(spec)

    def asked(*_: object) -> list[int]:
        raise TunesmithError("foreign-limit", "too long")

    monkeypatch.setattr("tunesmith_engine.train.loop.prompt_tokens", asked)
    assert train(run, lambda host: post_command(run.control_path, "sample", prompt="Why?")) == 0
    (warning,) = events(run, "warning")
    assert (warning.data["code"], "too long" in warning.data["message"]) == ("sample-failed", True)
    assert {event.data["prompt"] for event in events(run, "sample")} == {"Who?"}


def test_a_typed_prompt_is_rendered_in_a_child(spec: RunSpec, new_run: Callable[[RunSpec], Run]) -> None:
    run = new_run(spec)
    assert train(run, lambda host: post_command(run.control_path, "sample", prompt="Why?")) == 0
    assert {event.data["prompt"] for event in events(run, "sample")} == {"Who?", "Why?"}
    phases = [event.data["name"] for event in events(run, "phase")]
    assert phases[:4] == ["starting", "model", "data", "model"]


def test_a_stop_ends_the_preparation_at_once(spec: RunSpec, model: Path, new_run: Callable[[RunSpec], Run]) -> None:
    with_template(model, ENDLESS)
    run = new_run(spec)
    asked_s: list[float] = []

    def stop() -> None:
        while [event.data["name"] for event in events(run, "phase")][-1:] != ["data"]:
            time.sleep(0.02)
        asked_s.append(time.monotonic())
        post_command(run.control_path, "stop", mode="discard")

    thread = threading.Thread(target=stop)
    thread.start()
    train(run)
    took_s = time.monotonic() - asked_s[0]
    thread.join()
    assert result_of(run)["status"] in ("stopped", "failed"), "the template may have been ended just before"
    assert took_s < 60.0


def test_the_preview_has_limits_and_can_be_canceled(spec: RunSpec, model: Path) -> None:
    with_template(model, ENDLESS)
    outcome = conduct(PREVIEW, PreviewSpec(spec, 3), command=preparation._own_engine)
    assert outcome.error is not None
    assert "rows.jsonl, line 1: the chat template took longer than 2 s" in outcome.error.message
    cancel = threading.Event()
    cancel.set()
    outcome = conduct(PREVIEW, PreviewSpec(spec, 3), cancel=cancel, command=preparation._own_engine)
    assert outcome.state is OperationState.STOPPED


def changed_tokenizer(folder: Path, **changes: Any) -> None:
    """Change parts of a tokenizer."""
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | changes), encoding="utf-8")


def _growing(times: int) -> dict[str, Any]:
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    return {"type": "Sequence", "normalizers": [replace] * times}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _deep(levels: int) -> str:
    return '{"type":"Sequence","normalizers":[' * levels + '{"type":"NFC"}' + "]}" * levels


HOSTILE_TOKENIZERS: dict[str, Callable[[Path], None]] = {
    "growing text": lambda model: changed_tokenizer(model, normalizer=_growing(4)),
    "catastrophic regex": lambda model: changed_tokenizer(model, pre_tokenizer=_split("(a+)+$")),
    "nested quantifiers": lambda model: changed_tokenizer(model, pre_tokenizer=_split("((a|b|ab)*)*c")),
    "broken regex": lambda model: changed_tokenizer(model, pre_tokenizer=_split("(((")),
    "unknown model": lambda model: changed_tokenizer(model, model={"type": "Nothing"}),
    "empty": lambda model: (model / "tokenizer.json").write_text("{}"),  # type: ignore[dict-item,return-value]
    "deep": lambda model: (model / "tokenizer.json").write_text(  # type: ignore[dict-item,return-value]
        '{"version":"1.0","normalizer":' + _deep(100_000) + "}"
    ),
}


def check_tokenizer(spec: RunSpec, model: Path, name: str) -> None:
    """Prepare data with a hostile tokenizer: it works after all, or ends by name."""
    rows = Path(spec.data.sources[0].path)
    rows.write_text(json.dumps({"text": "a" * 5000 + "!"}) + "\n" + json.dumps({"text": "b"}) + "\n")
    HOSTILE_TOKENIZERS[name](model)
    error = None
    try:
        with Preparation(spec) as begun:
            begun.data()
    except TunesmithError as raised:
        error = raised
    if error:
        assert error.code != "bug", error.context
        assert error.hint
        assert str(model) in error.message or str(rows) in error.message


@pytest.mark.parametrize("name", ["growing text", "deep"])
def test_a_hostile_tokenizer(spec: RunSpec, model: Path, name: str) -> None:
    check_tokenizer(spec, model, name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(HOSTILE_TOKENIZERS) - {"growing text", "deep"}))
def test_other_hostile_tokenizers(spec: RunSpec, model: Path, name: str) -> None:
    check_tokenizer(spec, model, name)


@pytest.mark.long
def test_millions_of_added_tokens(spec: RunSpec, model: Path) -> None:
    tokens = [{"id": 500 + number, "content": f"t{number}", "special": True} for number in range(1_000_000)]
    common = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    changed_tokenizer(model, added_tokens=[token | common for token in tokens])
    assert failure(spec).code == "foreign-limit"


def test_a_long_row_of_a_person_is_no_bomb(spec: RunSpec) -> None:
    row = {"messages": [{"role": "user", "content": "Repeat."}, {"role": "assistant", "content": "word " * 400_000}]}
    path = write_chats(Path(spec.data.sources[0].path).with_name("long.jsonl"), 4)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    spec.data.sources[0].path = str(path)
    with Preparation(spec) as begun:
        data = begun.data()
    assert data is not None
    assert data.stats.num_truncated_rows == 1


def test_parquet_is_read_within_the_limits(spec: RunSpec, model: Path, tmp_path: Path) -> None:
    source = spec.data.sources[0]
    rows = [json.loads(line) for line in Path(source.path).read_text(encoding="utf-8").splitlines()]
    source.path = str(tmp_path / "rows.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows * 100), source.path)
    with Preparation(spec) as begun:
        data = begun.data()
    assert data is not None
    assert data.tokens_hash() == prepare(spec, load_tokenizer(model)).tokens_hash()
