"""On which device the model of a run answers, and what its process is shown of the GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import files
from tunesmith_core.devices import answering_on
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import ASK, CHAT, AskSpec, ChatSpec
from tunesmith_core.spec import RunSpec


@pytest.mark.parametrize(
    ("trained", "wanted", "answers"),
    [
        ("auto", "auto", "auto"),
        ("cpu", "auto", "auto"),
        ("cuda:1", "auto", "cuda:1"),
        ("cuda:1", "cuda", "cuda:1"),
        ("cuda:1", "cpu", "cpu"),
        ("cpu", "cuda", "cuda"),
    ],
)
def test_a_model_answers_on_its_own_gpu_unless_another_device_is_wanted(
    trained: str, wanted: str, answers: str
) -> None:
    spec = RunSpec()
    spec.hardware.devices = [trained]
    assert answering_on(spec, wanted).hardware.devices == [answers]
    assert spec.hardware.devices == [trained]


@pytest.mark.parametrize(("device", "shown"), [("auto", "1"), ("cpu", "-1")])
def test_the_process_sees_the_gpu_that_answers(device: str, shown: str, home: Path, tmp_path: Path) -> None:
    assert home.is_dir()
    run = make_tiny_run(tmp_path / "tiny-01")
    spec = run.load_spec()
    spec.hardware.devices = ["cuda:1"]
    files.atomic_write_json(run.spec_path, spec.to_dict())
    folder = RunFolder(str(run.path))
    for kind, asked in ((CHAT, ChatSpec(folder, 0, device)), (ASK, AskSpec(folder, "Who?", device=device))):
        assert kind.environment(asked)["CUDA_VISIBLE_DEVICES"] == shown
