"""Before a GGUF file is proposed, its model is refused as the export would refuse it, and no other is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.exports import OF_IMAGES, model_for_llama_cpp
from tests.engine.test_causal_types import spec_of
from tests.engine.test_export_gguf import INSIDE, QUICK
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.gguf import architectures
from tunesmith_engine.operations import check_gguf


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in (*QUICK, "llava") else pytest.param(INSIDE.get(kind, kind), marks=pytest.mark.long)
        for kind in (*architectures.ARCHITECTURES, *OF_IMAGES)
    ],
)
def test_what_is_written_is_refused_by_no_look_before(kind: str, tmp_path: Path) -> None:
    folder = model_for_llama_cpp(tmp_path, kind)
    check_gguf(None, spec_of(folder, model={"new_tokens": ["Tunesmith"]}, method={"embeddings": "new"}))


@pytest.mark.parametrize(
    ("rope", "tokenizer", "words"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, None, "method dynamic"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, None, "its positions turn in another way"),
        ({"rope_type": "default"}, "tiny", "it merges nothing"),
    ],
)
def test_what_can_not_be_written_is_refused_before(
    rope: dict[str, object], tokenizer: str | None, words: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = model_for_llama_cpp(tmp_path, rope_parameters={"rope_theta": 10000.0, **rope})
    if tokenizer:
        for path in tiny_model.glob("token*"):
            (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(TunesmithError, match=words) as refusal:
        check_gguf(None, spec_of(folder))
    assert refusal.value.code == "export-unsupported"
