"""A model of a type that transformers has no code for is refused before a run begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import open_model_folder


def refusal(folder: Path, **config: object) -> TunesmithError:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(TunesmithError) as caught:
        open_model_folder(folder)
    return caught.value


def test_a_type_that_nobody_knows(model_folder: Path) -> None:
    error = refusal(model_folder, model_type="foobar9")
    assert error.code == "transformers-version-mismatch"
    assert error.message == (
        f"{model_folder}: models of type foobar9 are not supported by the installed transformers."
    )
    assert error.hint


def test_a_type_that_only_the_models_own_code_knows(model_folder: Path) -> None:
    error = refusal(model_folder, model_type="foobar9", auto_map={"AutoModelForCausalLM": "modeling_foobar.Foobar"})
    assert error.code == "model-kind-unsupported"
    assert "Tunesmith never runs the code of a model." in error.message
    assert "without code of its own" in str(error.hint)
