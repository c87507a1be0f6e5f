"""A GGUF file that can't become a model folder is refused by what it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.exports import export, run_for_llama_cpp
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.gguf_import import import_gguf

pytestmark = pytest.mark.usefixtures("home", "few_prompts")


@pytest.mark.parametrize(("kind", "architecture"), [("falcon_h1", "falcon-h1"), ("gpt2", "gpt2")])
def test_a_file_that_transformers_does_not_read_is_refused_by_its_architecture(
    kind: str, architecture: str, tmp_path: Path
) -> None:
    export(run_for_llama_cpp(tmp_path, kind), tmp_path / "out", "gguf", type_name="f32")
    path = next((tmp_path / "out").glob("*.gguf"))
    words = f"{path.name}: models of the architecture {architecture} can't be imported"
    with pytest.raises(TunesmithError, match=words) as refusal:
        import_gguf(path, tmp_path / "imported")
    assert (refusal.value.code, refusal.value.context) == ("model-files-missing-or-corrupt", None)
    assert "original folder" in refusal.value.hint
    assert not (tmp_path / "imported").exists()


def test_a_whole_file_that_transformers_fails_at_is_not_to_be_downloaded_again(tmp_path: Path) -> None:
    """Of gpt-oss transformers 5.23 reads the name of a setting where its value is meant."""
    export(run_for_llama_cpp(tmp_path, "gpt_oss"), tmp_path / "out", "gguf", type_name="f32")
    path = next((tmp_path / "out").glob("*.gguf"))
    with pytest.raises(TunesmithError, match="nothing is missing from the file") as refusal:
        import_gguf(path, tmp_path / "imported")
    assert "this gpt-oss model" in refusal.value.message
    assert "original folder" in refusal.value.hint
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TunesmithError, match=r"cut\.gguf: the file can't be converted") as refusal:
        import_gguf(cut, tmp_path / "imported")
    assert "ownload" in refusal.value.hint
    assert not (tmp_path / "imported").exists()
