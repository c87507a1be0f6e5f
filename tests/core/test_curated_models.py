"""The list of models that ships with the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunesmith_core import cli
from tunesmith_core.curated_models import curated_models, own_list_path
from tunesmith_core.model_folder import is_hub_id


def test_our_list_is_sound_and_dated(home: Path) -> None:
    found = curated_models()
    assert found.date >= "2026"
    assert len({model.id for model in found.models}) == len(found.models) > 5
    for model in found.models:
        assert is_hub_id(model.id)
        assert 2024 <= model.year <= 2026
        assert model.num_parameters > 10**8
        assert model.licence
        assert model.context_length >= 2048
        assert model.model_type


def write_own(*models: dict[str, object]) -> None:
    own_list_path().parent.mkdir()
    own_list_path().write_text(json.dumps({"version": 1, "models": models}))


def test_models_of_ones_own_come_first_and_count_more(home: Path) -> None:
    ours = curated_models()
    changed = ours.models[3]
    write_own({"id": "org/mine"}, {"id": changed.id, "licence": "mine"})
    found = curated_models()
    assert (found.date, found.problem) == (ours.date, None)
    assert [model.id for model in found.models[:2]] == ["org/mine", changed.id]
    assert found.models[1].licence == "mine"
    assert {model.id for model in found.models} == {model.id for model in ours.models} | {"org/mine"}


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "models": [3]}'])
def test_a_damaged_list_of_ones_own_is_told(text: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = curated_models()
    write_own()
    own_list_path().write_text(text)
    found = curated_models()
    assert found.models == ours.models
    assert found.problem is not None
    assert str(own_list_path()) in found.problem.message
    assert cli.main(["models", "search", "--curated", "qwen3"]) == 0
    captured = capsys.readouterr()
    assert "Qwen/Qwen3-8B" in captured.out
    assert str(own_list_path()) in captured.err


def test_models_behind_a_license_say_so(home: Path) -> None:
    gated = {model.id.partition("/")[0] for model in curated_models().models if model.gated}
    assert gated == {"google", "meta-llama"}


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["--family", "gemma2"], {"google/gemma-2-2b-it"}),
        (["--license", "MIT", "--largest", "5"], {"microsoft/Phi-4-mini-instruct", "microsoft/Phi-3.5-mini-instruct"}),
        (["--licence", "mit", "--smallest", "5"], {"microsoft/phi-4"}),
        (["--limit", "1", "llama"], {"meta-llama/Llama-3.2-1B-Instruct"}),
    ],
)
def test_the_list_is_filtered(
    filters: list[str], wanted: set[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["models", "search", "--curated", *filters, "--json"]) == 0
    assert {each["id"] for each in json.loads(capsys.readouterr().out)["models"]} == wanted


def test_nothing_in_the_list_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "search", "--curated", "qwne"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No model of the list matches." in captured.err


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        (["--limit", "0"], "0 is not a number from 1 to 1000"),
        (["--limit", "x"], "x is not a number from 1 to 1000"),
        (["--smallest=-3"], "-3 is not a number of billions"),
        (["--largest", "abc"], "abc is not a number of billions"),
        (["--largest", "nan"], "nan is not a number of billions"),
    ],
)
def test_numbers_of_a_search_are_checked(
    filters: list[str], words: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["models", "search", *filters]) == 2
    assert words in capsys.readouterr().err


def test_the_command_needs_no_network(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "search", "--curated", "qwen-3 instruct", "--json"]) == 0
    assert {each["family"] for each in json.loads(capsys.readouterr().out)["models"]} == {"Qwen3"}
    assert cli.main(["models", "search", "--curated"]) == 0
    captured = capsys.readouterr()
    assert "Qwen/Qwen3-8B" in captured.out
    assert "2026" in captured.err
