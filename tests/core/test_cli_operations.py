"""What the commands of operations say at the end: sentences for a person, JSON lines for a program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunesmith_core import cli, export_proof, exports
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.operations import command
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec

PROOF = {"agreement": 1.0, "num_positions": 160, "mean_kl": 0.0053}
EXPORTED = {
    "path": "/exports/a",
    "bytes": 3 << 20,
    "existed": False,
    "licence": "unknown",
    "proof": PROOF,
    "commands": ["vllm serve /exports/a"],
}
MORE = {"existed": True, "licence": "gemma", "ollama": "mine", "lm_studio": "/lm/a"}
GPU = {"index": 0, "name": "H100", "capability": "9.0", "bfloat16": True, "free_bytes": 1 << 30, "total_bytes": 2 << 30}
LIBRARIES = {
    "python": "3.11.7",
    "system": "Linux",
    "packages": {"torch": "2.6.0", "trl": None},
    "cuda": None,
    "cpu_threads": 2,
    "host_total_bytes": 8 << 30,
    "host_available_bytes": 4 << 30,
    "gpus": [GPU],
}
FAILURE = EnvironmentProblem("driver-missing", "No driver.").to_dict()
STEPS = [
    {"title": "Import the libraries", "state": "ok", "seconds": 1.25, "details": {}},
    {"title": "Reach the GPUs", "state": "skipped", "seconds": 0, "details": {"reason": "There is none."}},
]
UNTRIED = {"title": "Train a tiny LoRA model", "state": "waiting"}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the operations answer, one after another."""
    given: list[Any] = []

    def conduct(*_: Any, on_event: Any, **__: Any) -> Outcome:
        answer = given.pop(0)
        on_event(Event(1, 0.0, "result", {"status": "finished", "answer": answer}))
        return Outcome(OperationState.FINISHED, 0, answer)

    monkeypatch.setattr(command, "conduct", conduct)
    return given


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    assert cli.main(words) == code
    return capsys.readouterr().out.splitlines()


def test_an_export_is_told_in_sentences(home: Any, answers: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run(RunSpec(name="mine"))
    answers += [EXPORTED, EXPORTED | MORE, EXPORTED | {"proof": None}, EXPORTED]
    assert said(capsys, "export", run.id) == [
        "Verified equal: /exports/a (3 MiB)",
        "Same next token at 100.0% of 160 positions, 0.0053 nats apart. Nats tell how far apart the probabilities of "
        "two models are, and 0 is equal.",
        "to use it: vllm serve /exports/a",
    ]
    assert said(capsys, "export", run.id)[2:-1] == [
        "It was exported before and has not changed since.",
        "In Ollama: ollama run mine",
        "In LM Studio: /lm/a",
        "The license of the base model applies here too: gemma",
    ]
    assert said(capsys, "export", run.id)[0] == "Exported, but not verified: /exports/a (3 MiB)"
    (line,) = said(capsys, "export", run.id, "--json")
    assert json.loads(line)["answer"] == EXPORTED


@pytest.mark.parametrize(
    ("agreement", "nats", "words"),
    [
        (1.0, 0.0, "Verified equal"),
        (1.0, export_proof.UNEQUAL_NATS, "Verified equal"),
        (1.0, 0.02, "Verified: only rounding differs"),
        (0.999, 1e-9, "Verified: only rounding differs"),
        (0.9, export_proof.TOLD_NATS, "Verified: only rounding differs"),
        (1.0, 0.11, "Exported, but the answers change"),
    ],
)
def test_equal_is_said_only_where_every_next_token_is_the_same(agreement: float, nats: float, words: str) -> None:
    assert export_proof.title(PROOF | {"agreement": agreement, "mean_kl": nats}) == words


@pytest.mark.parametrize(
    ("by_format", "causes", "words"),
    [
        (2.7e-5, ["rounding"], "Verified: only rounding differs"),
        (1.2e-7, ["rounding"], "Verified: only rounding differs"),
        (1.4e-8, ["rounding"], "Verified equal"),
        (2.7e-5, ["positions"], "Verified: only stretched positions differ"),
    ],
)
def test_numbers_that_the_format_changes_are_not_called_equal(by_format: float, causes: list[str], words: str) -> None:
    """A mixture in bfloat16: all of 160 next tokens were the same, and 3% of others were not."""
    proof = PROOF | {"mean_kl": 2.7e-5, "causes": causes, "rounding": {"mean_kl": by_format}}
    assert export_proof.title(proof) == words


def test_answers_that_change_are_told_with_their_figures() -> None:
    assert export_proof.changed_answers({"mean_kl": export_proof.TOLD_NATS, "agreement": 0.9}) is None
    told = export_proof.changed_answers({"mean_kl": 0.54, "agreement": 0.69})
    assert told is not None
    assert "69% of the next tokens" in told
    assert "less than 0.0001 nats" in export_proof.figures(PROOF | {"mean_kl": 1e-9})
    tiny = export_proof.figures(PROOF | {"mean_kl": 1e-9, "rounding": {"mean_kl": 3e-7}})
    assert tiny.endswith(
        "less than 0.0001 nats apart. "
        "Rounding the trained model to this type, without converting it, gives less than 0.0001 nats."
    )
    rates = PROOF | {"rates": True, "num_positions": 20}
    told = export_proof.figures(rates | {"mean_kl": 1e-9})
    assert told.startswith("Rates 100.0% of 20 texts alike, at most 0.0001 nats apart on average.")
    assert "at most 0.04 nats" in export_proof.figures(rates | {"mean_kl": 0.04})
    told = export_proof.changed_answers(rates | {"mean_kl": 0.2, "agreement": 0.9})
    assert told is not None
    assert told.startswith("The 16-bit numbers of this model change what it says: 90% of the texts")
    rounded = export_proof.figures(PROOF | {"mean_kl": 0.086, "rounding": {"mean_kl": 0.0842}})
    assert rounded.endswith("Rounding the trained model to this type, without converting it, gives 0.084 nats.")


@pytest.mark.parametrize(
    ("causes", "title", "figures"),
    [
        (["rounding"], "only rounding differs", "trained model to f16, without converting it, gives 0.01 nats."),
        (["positions"], "only stretched positions differ", "positions stretched as in llama.cpp gives 0.01 nats."),
        (
            ["rounding", "positions"],
            "only rounding and stretched positions differ",
            "model to f16, with positions stretched as in llama.cpp, gives 0.01 nats.",
        ),
    ],
)
def test_the_cause_of_a_difference_is_told(causes: list[str], title: str, figures: str) -> None:
    proof = PROOF | {"agreement": 0.9, "causes": causes, "type": "f16", "rounding": {"mean_kl": 0.01}}
    assert export_proof.title(proof).endswith(title)
    assert figures in export_proof.figures(proof)
    changed = export_proof.changed_answers(proof | {"mean_kl": 0.5})
    assert changed is not None
    assert ("smaller numbers" in changed) is ("rounding" in causes)


@pytest.mark.usefixtures("home")
def test_other_operations_speak_in_sentences_too(answers: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    answers += [{"path": "/models/a", "bytes": 5 << 20}, LIBRARIES, {"rows": []}]
    assert said(capsys, "import-gguf", "a.gguf", "/models/a") == ["/models/a (5 MiB)"]
    shown = said(capsys, "libraries")
    assert "torch        2.6.0" in shown
    assert "trl          not installed" in shown
    assert "CUDA         none" in shown
    assert "Memory       4.00 GiB of 8.00 GiB free" in shown
    assert "GPU 0        H100, compute capability 9.0, 1.00 GiB of 2.00 GiB free" in shown
    assert said(capsys, "bench", "/m", "a:1:16") == []


@pytest.mark.usefixtures("home")
def test_a_selftest_says_what_works_and_ends_with_what_fails(
    answers: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fine = {"device": "cpu", "seconds": 2.5, "state": "ok", "steps": STEPS}
    failed = {"title": "Compute with 4-bit weights", "state": "failed", "seconds": 1, "error": FAILURE}
    bad = {"device": "cuda", "seconds": 2.5, "state": "failed", "steps": [failed, UNTRIED], "error": FAILURE}
    answers += [fine, fine | {"device": "cuda"}, bad]
    assert said(capsys, "selftest") == [
        "Import the libraries: works (1.2 s)",
        "Reach the GPUs: not needed here: There is none.",
        "Training works on the CPU. It took 2.5 s.",
    ]
    assert said(capsys, "selftest")[-1] == "Training works on the GPU. It took 2.5 s."
    assert said(capsys, "selftest", code=3) == [
        "Compute with 4-bit weights: fails: No driver.",
        "Train a tiny LoRA model: not tried",
    ]


def test_an_export_is_uploaded_where_a_repository_is_named(
    home: Any, answers: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(RunSpec(name="mine"))
    pushed = {"id": "me/bot", "url": "https://hub/me/bot", "private": True}
    answers += [EXPORTED, pushed, EXPORTED, pushed | {"private": False}, EXPORTED, pushed]
    told = said(capsys, "export", run.id, "--push", "me/bot")
    assert told[0] == "Verified equal: /exports/a (3 MiB)"
    assert told[-2:] == ["uploading 3 MiB to me/bot, private", "On the hub, private: https://hub/me/bot"]
    told = said(capsys, "export", run.id, "--push", "me/bot", "--public")
    assert told[-2:] == ["uploading 3 MiB to me/bot, public", "On the hub, public: https://hub/me/bot"]
    lines = said(capsys, "export", run.id, "--push", "me/bot", "--json")
    assert [json.loads(line)["answer"] for line in lines] == [EXPORTED, pushed]
    assert said(capsys, "export", run.id, "--push", "nobody", code=2) == []
    assert exports.facts(EXPORTED | {"hub": pushed}) == ["On the hub, private: https://hub/me/bot"]
