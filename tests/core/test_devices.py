"""On which device the model of a run answers."""

from __future__ import annotations

import pytest

from tunesmith_core.devices import answering_on
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
