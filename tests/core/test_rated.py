"""What a model with a head says of a text of one's own, in words, and who is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tunesmith_core import cli, rated
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations import command
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.rate import RateSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec

CLASSES = [["good", 0.9], *([f"class {number}", 0.02] for number in range(5))]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"score": -1.5, "num_cut": 0}, ["Score: -1.500", "A score has no unit and no zero."]),
        ({"number": 3.14159}, ["Predicted number: 3.142"]),
        ({"classes": CLASSES}, ["good: 90.0%", *[f"class {number}: 2.0%" for number in range(4)]]),
        ({"steps": [0.875]}, ["Step 1 is right with a probability of 87.5%."]),
        ({"number": 1.0, "num_cut": 12}, ["Predicted number: 1", "The text is longer than the context length"]),
    ],
)
def test_the_answer_is_told_in_words(answer: dict[str, Any], expected: list[str]) -> None:
    told = rated.words(answer)
    assert len(told) == len(expected)
    assert all(sentence.startswith(begins) for sentence, begins in zip(told, expected, strict=True))


def test_a_model_that_writes_rates_nothing(make_spec: Callable[..., RunSpec]) -> None:
    spec = make_spec()
    with pytest.raises(TunesmithError, match="writes texts and rates none"):
        rated.check_rates(spec)
    spec.objective.kind = "reward"
    rated.check_rates(spec)


def test_the_command_names_the_run_and_the_text(
    make_spec: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("scores"))
    asked: list[RateSpec] = []

    def conduct(_kind: object, spec: RateSpec, **_: object) -> Outcome:
        asked.append(spec)
        return Outcome(OperationState.FINISHED, 0, {"score": 2.0})

    monkeypatch.setattr(command, "conduct", conduct)
    assert cli.main(["rate", run.id, "Me.", "--prompt", "Who?", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("Score: 2.000\n")
    assert asked == [RateSpec(RunFolder(str(run.path)), "Me.", "Who?", device="cpu")]
    assert asked[0].answering().hardware.device == "cpu"
