"""How many tokens a model can read is known by its files where positions are learned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import position_limits
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.position_limits import beyond_stated, num_positions, positions_of, stated_context, too_long
from tunesmith_core.spec import RunSpec

TEXT = {"max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("config", "shapes", "found"),
    [
        ({"n_positions": 64}, {"wpe.weight": (64, 8), "wte.weight": (64, 8)}, 64),
        (TEXT, {"model.decoder.embed_positions.weight": (66, 8)}, 64),
        ({"text_config": TEXT}, {"language_model.embed_positions.weight": (64, 8)}, 64),
        (TEXT, {"model.embed_tokens.weight": (64, 8)}, 0),
        # Others count pieces of an image, or distances.
        (TEXT, {"vision_tower.position_embedding.weight": (64, 8), "relative_pos_embeddings.weight": (99, 8)}, 0),
        ({}, {"wpe.weight": (64, 8)}, 0),
    ],
)
def test_a_table_of_the_stated_length_is_the_limit(
    config: dict[str, Any], shapes: dict[str, tuple[int, ...]], found: int
) -> None:
    assert num_positions(config, shapes) == found


def test_rows_behind_the_last_position_are_refused() -> None:
    assert too_long(64, 64, "m") is None
    assert too_long(999, 0, "m") is None
    problem = too_long(65, 64, "m")
    assert isinstance(problem, UserError)
    assert problem.message == (
        "data.context_length: the longest row has 65 tokens, but m supports only 64."
    )
    assert problem.hint == "Set the context length to 64 tokens or less."


def test_rows_longer_than_the_model_is_made_for_are_told() -> None:
    assert beyond_stated(512, 512, 2) is None
    assert beyond_stated(9999, 0, 2) is None, "nobody knows"
    note = beyond_stated(716, 512, 512)
    assert note is not None
    assert "716 tokens" in note
    assert "Set the context length to 512 tokens." in note
    beyond = beyond_stated(716, 512, 513)
    assert beyond is not None
    assert "Set the context length" not in beyond, "nothing would be learned"
    assert "Use shorter prompts" in beyond


@pytest.mark.parametrize("name", ["max_position_embeddings", "n_positions", "model_max_length"])
def test_the_stated_length_has_several_names(tmp_path: Path, make_spec: Callable[..., RunSpec], name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "kimi_linear", name: 512}))
    spec = make_spec()
    spec.model.path = str(tmp_path)
    assert stated_context(spec) == 512


def test_the_model_of_a_run_is_looked_at(
    make_spec: Callable[..., RunSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec()
    assert positions_of(spec) == 0
    monkeypatch.setattr(position_limits, "context_length", lambda _folder: 64)
    assert stated_context(spec) == 64
    # What is wrong with a model is said elsewhere, and what isn't downloaded says nothing.
    for spec.model.path in (str(tmp_path / "gone"), "nobody/nothing"):
        assert (positions_of(spec), stated_context(spec)) == (0, 0)
    monkeypatch.setattr(position_limits, "local_folder", lambda *_: tmp_path)
    monkeypatch.setattr(position_limits, "open_model_folder", _refuse)
    assert positions_of(spec) == 0


def _refuse(_folder: Path) -> None:
    raise TunesmithError("model-files-missing-or-corrupt", "No.")
