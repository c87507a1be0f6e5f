"""Run specs as editors, scripts and other versions write them: every wrong field is named, in a message of a page."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import json_values
from tunesmith_core import spec as spec_module
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.spec import RunSpec, iter_settings
from tunesmith_core.spec_sections import MOST_SOURCES
from tunesmith_core.spec_training import MOST_STEPS

LONGEST_MESSAGE = 4000


def good() -> dict[str, Any]:
    spec = RunSpec()
    spec.model.path, spec.data.sources[0].path = "m", "d"
    return spec.to_dict()


def refusal(path: Path, content: str | dict[str, Any]) -> TunesmithError:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(TunesmithError) as caught:
        RunSpec.load(path)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert len(caught.value.message) < LONGEST_MESSAGE
    return caught.value


def test_a_name_that_occurs_twice(tmp_path: Path) -> None:
    text = json.dumps(good()).replace('"rank": 16', '"rank": 16, "rank": 64')
    error = refusal(tmp_path / "s.json", text)
    assert error.code == "file-unreadable"
    assert error.message == f'{tmp_path / "s.json"}: "rank" occurs twice.'


def test_a_file_of_any_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_module, "MOST_BYTES", 1 << 20)
    error = refusal(tmp_path / "s.json", " " * (1 << 20) + "{}")
    assert "the file is larger than 1 MiB" in error.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"path": "a\0b"}}, "model.path must not contain a NUL character"),
        ({"data": {"sources": [{"path": "a\0"}]}}, "data.sources[0].path must not contain a NUL character"),
        ({"data": {"sources": [{"path": "d", "columns": {"a\0": "b"}}]}}, "columns must not contain a NUL"),
        ({"adapter": {"target_modules": ["q\0"]}}, "adapter.target_modules must not contain a NUL character"),
        ({"evaluation": {"sample_prompts": ["ok", "a\0b"]}}, "evaluation.sample_prompts must not contain a NUL"),
        ({"name": "a\0"}, "name must not contain a NUL character"),
        ({"name": ["x" * 50_000]}, "name must be a text, not"),
        ({"adapter": {"rank": "x" * 50_000}}, "adapter.rank must be a whole number, not 'xxx"),
        ({"adapter": {"layers": [1.5, True]}}, "adapter.layers must be a list of texts, not [1.5, true]"),
        ({"adapter": {"layers": [-1]}}, "adapter.layers must be written as numbers of layers, such as 0-7, 20"),
        ({"adapter": {"rank_pattern": [1, 3]}}, "adapter.rank_pattern must be a list of texts, not [1, 3]"),
        ({"adapter": {"x" * 50_000: 1}}, "is not a setting of this version"),
        ({"x" * 50_000: 1}, "is not a section of this version"),
        ({f"unknown-{number}": 1 for number in range(20_000)}, "\n  and 19980 more"),
        ({"version": True}, "version must be 3, not true"),
        ({"version": [7] * 5000}, "version must be 3, not "),
        ({"data": {"sources": [{"path": "d"}] * (MOST_SOURCES + 1)}}, "data.sources must be at most 1000 files"),
        ({"evaluation": {"sample_prompts": ["Hi"] * 101}}, "evaluation.sample_prompts must be at most 100 prompts"),
        ({"schedule": {"max_steps": 10**30}}, "schedule.max_steps must be at most 10,000,000"),
        ({"saving": {"every_steps": MOST_STEPS + 1}}, "saving.every_steps must be at most 10,000,000"),
    ],
)
def test_a_wrong_field_is_named_in_few_words(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    values = good()
    for section, fields in change.items():
        values[section] = values[section] | fields if isinstance(values.get(section), dict) else fields
    error = refusal(tmp_path / "s.json", values)
    assert error.code == "spec-invalid"
    assert words in error.message


def test_a_version_of_thousands_of_digits(tmp_path: Path) -> None:
    assert refusal(tmp_path / "s.json", good() | {"version": 10**4000}).code == "spec-too-new"


def test_every_number_of_steps_has_an_end() -> None:
    open_ended = {
        setting.path for setting in iter_settings() if setting.type is int and setting.declaration.maximum is None
    }
    assert open_ended == set()


def test_a_path_of_thousands_of_letters_is_told_in_few(tmp_path: Path) -> None:
    error = wrap(OSError(errno.ENAMETOOLONG, "File name too long", str(tmp_path / ("x" * 5000))))
    assert error.code == "path-too-long"
    assert len(error.message) < 200
    assert error.hint
    assert json_values.brief("x" * 80) == "x" * 80
    assert json_values.brief("x" * 81).endswith("…")
    assert wrap(OSError(errno.ENAMETOOLONG, "File name too long")).message == "the path is too long."
