"""The system prompt of the training rows: found while rows are read, and used wherever the trained model is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests import real_runs
from tests.engine.conftest import events, train
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import ASK, AskSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.system_prompt import MOST_CHARACTERS, CommonSystemPrompt
from tunesmith_engine.export.adapter_card import system_prompt_part
from tunesmith_engine.export.merged_card import merged_card

Make = Callable[..., RunSpec]
New = Callable[[RunSpec], Run]

SAILOR = "Answer as a sailor."


def chat(system: Any = None, number: int = 0) -> list[dict[str, Any]]:
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": f"Is it {number}?"}, {"role": "assistant", "content": "Aye"}]


@pytest.mark.parametrize(
    ("systems", "expected"),
    [
        ([], ""),
        ([SAILOR], SAILOR),
        ([SAILOR, SAILOR, None], SAILOR),
        ([SAILOR, None], ""),
        ([SAILOR, "Be brief.", "Be long."], ""),
        ([*map(str, range(200)), *[SAILOR] * 300], ""),
        ([SAILOR, *map(str, range(200)), *[SAILOR] * 300], SAILOR),
        (["x" * MOST_CHARACTERS], "x" * MOST_CHARACTERS),
        (["x" * (MOST_CHARACTERS + 1)], ""),
        ([[{"type": "text", "text": SAILOR}]], ""),
    ],
)
def test_most_rows_must_begin_with_it(systems: Sequence[Any], expected: str) -> None:
    common = CommonSystemPrompt()
    for system in systems:
        common.take(chat(system))
    assert common.text == expected


def test_rows_that_are_no_chats_count_too() -> None:
    common = CommonSystemPrompt()
    common.take(chat(SAILOR))
    common.take()
    assert common.text == ""


def trained(make: Make, new: New, path: Path, systems: Sequence[str | None], **data: object) -> Run:
    rows = [{"messages": chat(system, number)} for number, system in enumerate(systems)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    spec = make(
        data={"path": str(path), "context_length": 128, **data},
        schedule={"max_steps": 1},
        evaluation={"sample_prompts": ["Who?"], "percent": 0},
    )
    run = new(spec)
    assert train(run) == 0
    return run


@pytest.mark.parametrize(
    ("systems", "setting", "expected"),
    [([SAILOR] * 8, "", SAILOR), ([None] * 8, SAILOR, SAILOR), ([None] * 8, "", ""), ([SAILOR, None] * 4, "", "")],
)
def test_a_run_tells_it(
    tiny_spec: Make,
    new_run: New,
    tmp_path: Path,
    systems: Sequence[str | None],
    setting: str,
    expected: str,
) -> None:
    run = trained(tiny_spec, new_run, tmp_path / "chats.jsonl", systems, system_prompt=setting)
    assert [event.data["system_prompt"] for event in events(run, "setup")] == [expected]
    assert system_prompt_of(run) == expected
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert (f"```\n{SAILOR}\n```" in card) == bool(expected)


def test_a_run_of_before_has_that_of_its_settings(tiny_spec: Make, new_run: New) -> None:
    assert system_prompt_of(new_run(tiny_spec(data={"system_prompt": SAILOR}))) == SAILOR
    assert system_prompt_of(new_run(tiny_spec())) == ""


def test_the_trained_model_is_asked_as_it_learned(
    tiny_spec: Make, new_run: New, tiny_model: Path, tmp_path: Path, home: Path
) -> None:
    real_runs.point_at_training_environment(home)
    run = trained(tiny_spec, new_run, tmp_path / "chats.jsonl", [SAILOR] * 8)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)

    def num_tokens(system: str | None) -> int:
        asked = [message for message in chat(system) if message["role"] != "assistant"]
        return len(tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False))

    def asked(**settings: Any) -> int:
        spec = AskSpec(RunFolder(str(run.path)), "Is it 0?", max_tokens=2, device="cpu", **settings)
        return int(conduct(ASK, spec, on_event=lambda _: None).get()["answers"]["tuned"]["prompt_tokens"])

    assert asked() == num_tokens(SAILOR) != num_tokens(None)
    assert asked(system="Be brief.") == num_tokens("Be brief.")


def test_a_card_keeps_fences_of_a_system_prompt_apart() -> None:
    assert "````\nUse ``` for code.\n````" in system_prompt_part("Use ``` for code.")
    assert system_prompt_part("") == ""


def test_the_card_of_a_model_tells_the_verdict_of_its_step(new_run: New, tiny_spec: Make, tiny_model: Path) -> None:
    run = new_run(tiny_spec())
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("setup", num_train_rows=9, num_eval_rows=9, num_distinct_rows=9, system_prompt=SAILOR)
        for step, loss in ((0, 3.0), (12, 1.0)):
            journal.write("eval", step=step, loss=loss)
            asked = [{"prompt": f"{n}?", "expected": "1", "answer": "2", "right": False} for n in range(3)]
            journal.write("answers", step=step, answers=asked)

    def card(step: int) -> str:
        status = SimpleNamespace(step=12, first_eval_loss=3.0, eval_loss=1.0)
        trained: Any = SimpleNamespace(
            run=run, spec=run.load_spec(), status=status, step=step, is_full=False, quantized_bits=lambda _: 0
        )
        return merged_card(trained, tiny_model, "float32", None)

    assert "No answer is right yet" in card(12)
    assert "Right answers to 3 held-out questions: 0 before, 0 after." in card(12)
    assert "No answer is right yet" not in card(6), "the verdict is not that of an earlier checkpoint"
    assert f"```\n{SAILOR}\n```" in card(6)
