"""Chat with what a run has trained: real processes, a tiny model, answers equal to transformers' own."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoTokenizer

from tests import real_runs
from tests.engine.exports import STEP, save, trained_run
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import ASK, BASE, CHAT, SIDES, TUNED, AskSpec, ChatSpec, ask
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event, post_command
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_engine import operations
from tunesmith_engine.chat import serve
from tunesmith_engine.chat.prompting import Prompt
from tunesmith_engine.chat.session import Session
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.lora import trainable

PATIENCE_S = 240.0
QUESTION = [{"role": "user", "content": "Who?"}]


@pytest.fixture
def training_home(home: Path) -> Path:
    real_runs.point_at_training_environment(home)
    return home


def expected(model: PeftModel, folder: Path, num_tokens: int, side: str = TUNED) -> str:
    """What transformers alone answers to QUESTION."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    settings: dict[str, Any] = {"max_new_tokens": num_tokens, "do_sample": False}
    with torch.no_grad():
        if side == TUNED:
            out = model.generate(input_ids=ids, **settings)
        else:
            with model.disable_adapter():
                out = model.generate(input_ids=ids, **settings)
    return str(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)).strip()


class Talk:
    """A chat operation on a thread, as the window and the terminal have it."""

    def __init__(self, run: Run, checkpoint: int = 0) -> None:
        self.events: list[Event] = []
        self.cancel = threading.Event()
        self._operation: Operation | None = None
        self.outcome: Outcome | None = None
        self._spec = ChatSpec(RunFolder(str(run.path)), checkpoint, "cpu")
        self._thread = threading.Thread(target=self._conduct, daemon=True)
        self._thread.start()

    def _conduct(self) -> None:
        self.outcome = conduct(
            CHAT, self._spec, on_event=self.events.append, on_created=self._begin, cancel=self.cancel
        )

    def _begin(self, operation: Operation) -> None:
        self._operation = operation

    def post(self, command: str, **data: object) -> str:
        assert self._operation is not None
        return post_command(self._operation.control_path, command, **data)

    def ask(self, *sides: str, content: str = "Who?", max_tokens: int = 12) -> str:
        messages = {side: [{"role": "user", "content": content}] for side in sides}
        return self.post("ask", **ask(sides, messages, Sampling(max_tokens)))

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for event in list(self.events):
                if wanted(event):
                    return event
            assert self._thread.is_alive(), self.outcome
            time.sleep(0.01)
        raise AssertionError([event.type for event in self.events])

    def done(self, ask_id: str, side: str) -> tuple[dict[str, Any], str]:
        """The end of an answer and its text."""
        event = self.until(lambda each: each.type == "done" and (each.data["ask"], each.data["side"]) == (ask_id, side))
        pieces = [each.data for each in self.events if each.type == "piece"]
        mine = [piece["text"] for piece in pieces if (piece["ask"], piece["side"]) == (ask_id, side)]
        return event.data, "".join(mine).strip()

    def end(self) -> Outcome:
        self.cancel.set()
        self._thread.join(PATIENCE_S)
        assert self.outcome is not None
        return self.outcome


def test_one_question_is_answered_by_both_sides_as_transformers_answers(
    training_home: Path, tiny_model: Path
) -> None:
    assert training_home.is_dir()
    run, model = trained_run(tiny_model)
    events: list[Event] = []
    spec = AskSpec(RunFolder(str(run.path)), "Who?", both=True, max_tokens=12, device="cpu")
    answers = conduct(ASK, spec, on_event=events.append).get()["answers"]
    for side in SIDES:
        assert answers[side]["text"] == expected(model, tiny_model, 12, side)
        assert answers[side]["tokens"] == 12
        assert answers[side]["status"] == "length"
        assert answers[side]["first_s"] <= answers[side]["seconds"]
        pieces = [event.data["text"] for event in events if event.type == "piece" and event.data["side"] == side]
        assert "".join(pieces).strip() == answers[side]["text"]
    assert answers[TUNED]["text"] != answers[BASE]["text"]


def test_a_chat_answers_stops_switches_and_ends(training_home: Path, tiny_model: Path) -> None:
    assert training_home.is_dir()
    run, model = trained_run(tiny_model)
    first = expected(model, tiny_model, 12)
    for parameter in trainable(model).values():
        parameter.data += 0.05
    save(run, model, STEP + 2)
    talk = Talk(run, STEP)
    ready = talk.until(lambda each: each.type == "ready").data
    assert (ready["step"], ready["device"], ready["most_tokens"]) == (STEP, "cpu", 512)
    assert ready["has_template"] is bool(load_tokenizer(tiny_model).chat_template)
    assert talk.done(talk.ask(TUNED), TUNED)[1] == first

    # A stop ends the answer under way and the next side, not the chat.
    asked = talk.ask(TUNED, BASE, max_tokens=400)
    talk.until(lambda each: each.type == "piece" and each.data["ask"] == asked)
    talk.post("cancel")
    end, text = talk.done(asked, TUNED)
    assert end["status"] == "canceled"
    assert text
    assert talk.done(asked, BASE)[0]["status"] == "canceled"

    # A stop while nobody listens is meant for what was asked before it, and for nothing after.
    running, waiting = talk.ask(TUNED, max_tokens=400), talk.ask(TUNED)
    talk.post("cancel")
    assert talk.done(running, TUNED)[0]["status"] == "canceled"
    assert talk.done(waiting, TUNED)[0]["status"] == "canceled"
    end, text = talk.done(talk.ask(TUNED), TUNED)
    assert (end["step"], text) == (STEP, first)

    # Another checkpoint answers in the same process; one that isn't there leaves the one before.
    switched = talk.post("switch", checkpoint=STEP + 2)
    talk.until(lambda each: each.type == "ack" and each.data["id"] == switched and each.data["ok"])
    assert talk.done(talk.ask(TUNED), TUNED)[1] == expected(model, tiny_model, 12)
    refused = talk.post("switch", checkpoint=99)
    ack = talk.until(lambda each: each.type == "ack" and each.data["id"] == refused).data
    assert not ack["ok"]
    assert "no checkpoint of step 99" in ack["message"]
    assert talk.done(talk.ask(TUNED), TUNED)[1] == expected(model, tiny_model, 12)

    # What is too long is refused, and the chat stays.
    end, _ = talk.done(talk.ask(TUNED, content="x" * 600), TUNED)
    assert (end["status"], end["error"]["code"]) == ("failed", "chat-too-long")
    assert talk.done(talk.ask(BASE), BASE)[1] == expected(model, tiny_model, 12, BASE)
    assert talk.end().state is OperationState.STOPPED


def test_a_template_that_breaks_a_limit_costs_one_answer(
    training_home: Path, tiny_model: Path, tmp_path: Path
) -> None:
    assert training_home.is_dir()
    folder = tmp_path / "model"
    folder.mkdir()
    for path in tiny_model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    template = folder / "chat_template.jinja"
    endless = "{% if messages[0].content == 'Loop' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    template.write_text(f"{endless}{{% endfor %}}{{% endif %}}{template.read_text(encoding='utf-8')}", encoding="utf-8")
    run, model = trained_run(folder)
    talk = Talk(run)
    talk.until(lambda each: each.type == "ready")
    end, _ = talk.done(talk.ask(TUNED, content="Loop"), TUNED)
    assert (end["status"], end["error"]["code"]) == ("failed", "foreign-limit")
    assert talk.done(talk.ask(TUNED), TUNED)[1] == expected(model, folder, 12)
    talk.end()


def test_a_run_without_anything_trained_says_so(training_home: Path, tiny_model: Path) -> None:
    assert training_home.is_dir()
    run, _ = trained_run(tiny_model)
    outcome = conduct(CHAT, ChatSpec(RunFolder(str(run.path)), 99, "cpu"))
    assert isinstance(outcome.error, TunesmithError)
    assert outcome.error.code == "checkpoint-missing"


@pytest.mark.parametrize(
    ("needs", "do"),
    [
        ("tunesmith_engine.chat.session", lambda host, run: operations.chat(host, ChatSpec(run, 99))),
        ("tunesmith_engine.chat.session", lambda host, run: operations.ask(host, AskSpec(run, "Who?", 99))),
        ("tunesmith_engine.export.export_run", lambda host, run: operations.export(host, ExportSpec(run, 99))),
        ("tunesmith_engine.evaluation.evaluate", lambda host, run: operations.evaluate(host, EvaluateSpec(run, 99))),
    ],
    ids=["chat", "ask", "export", "evaluate"],
)
def test_a_checkpoint_that_is_missing_is_told_before_anything_is_loaded(
    needs: str, do: Callable[[Host, RunFolder], Any], home: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = trained_run(tiny_model)
    (home / "operation").mkdir()
    monkeypatch.setitem(sys.modules, needs, None)
    with Host(Run(home / "operation")) as host, pytest.raises(TunesmithError) as refusal:
        do(host, RunFolder(str(run.path)))
    assert refusal.value.code == "checkpoint-missing"


def test_a_chat_ends_when_nobody_asks(home: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = trained_run(tiny_model)
    monkeypatch.setattr(serve, "IDLE_S", 0.2)
    folder = home / "operation"
    folder.mkdir()
    with Host(Run(folder)) as host:
        assert serve.chat(host, ChatSpec(RunFolder(str(run.path)), 0, "cpu")) == {"reason": "idle"}


def test_a_chat_makes_room_for_a_run_that_needs_the_gpu(
    home: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunesmith_core.devices import Device

    run, _ = trained_run(tiny_model)
    holders = iter(["beside", "beside", "", "another"])
    monkeypatch.setattr(serve, "holder_of", lambda _device: next(holders))
    monkeypatch.setattr(serve, "device_of", lambda _spec: Device(0))
    monkeypatch.setattr(serve, "LOOK_S", 0.01)
    folder = home / "operation"
    folder.mkdir()
    with Host(Run(folder)) as host:
        assert serve.chat(host, ChatSpec(RunFolder(str(run.path)), 0, "cpu")) == {"reason": "gpu-needed"}
    assert next(holders, None) is None


def test_the_first_answer_on_a_cpu_does_not_wait_for_the_comparison(home: Path, tiny_model: Path) -> None:
    assert home.is_dir()
    run, model = trained_run(tiny_model)
    session = Session(run, run.load_spec(), tiny_model, 0)
    prompt = Prompt([3, 5, 7], thinks=False)
    told: list[str] = []
    answers = []
    for name in ("plain", "fused"):
        assert not session.may_hurry
        assert session._decoder.name == name
        answers.append(session.answer(prompt, TUNED, Sampling(8), lambda text, _: told.append(text), lambda: False))
        if session.may_hurry:
            session.hurry()
    assert not session.may_hurry
    assert answers[0].answer.text == answers[1].answer.text
    assert model.training is False


def test_a_quiet_chat_takes_the_fastest_way(
    home: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried: list[float] = []
    run, _ = trained_run(tiny_model)
    monkeypatch.setattr(serve, "QUIET_S", 0.3)
    monkeypatch.setattr(serve, "IDLE_S", 1.5)
    monkeypatch.setattr(Session, "may_hurry", property(lambda _self: not hurried))
    monkeypatch.setattr(Session, "hurry", lambda _self: hurried.append(time.monotonic()))
    folder = home / "operation"
    folder.mkdir()
    with Host(Run(folder)) as host:
        serve.chat(host, ChatSpec(RunFolder(str(run.path)), 0, "cpu"))
    assert len(hurried) == 1
    assert time.monotonic() - hurried[0] > 0.9, "long before it is unloaded"


STARTED = """
import sys
sys.path.insert(0, sys.argv[1])
from tunesmith_engine.__main__ import main
code = main(["operation", sys.argv[2]])
print(sorted(name for name, module in sys.modules.items() if module), file=open(sys.argv[3], "w"))
sys.exit(code)
"""


def test_a_chat_without_4_bits_does_not_load_the_compiler(home: Path, tiny_model: Path, tmp_path: Path) -> None:
    assert home.is_dir()
    run, _ = trained_run(tiny_model)
    engine = Path(serve.__file__).parents[2]
    spec = AskSpec(RunFolder(str(run.path)), "Who?", max_tokens=2, device="cpu")
    loaded = tmp_path / "loaded"

    def command(operation: Operation) -> list[str]:
        return [sys.executable, "-c", STARTED, str(engine), str(operation.path), str(loaded)]

    conduct(ASK, spec, command=command).get()
    names = loaded.read_text(encoding="utf-8")
    assert "'peft'" in names
    assert "'bitsandbytes'" not in names


@pytest.mark.parametrize("works", [True, False])
def test_loading_looks_for_no_garbage(
    works: bool, home: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = trained_run(tiny_model)
    collects: list[bool] = []
    load = serve._open

    def noted(*given: Any) -> Any:
        collects.append(gc.isenabled())
        if not works:
            raise TunesmithError("checkpoint-missing", "None.")
        return load(*given)

    monkeypatch.setattr(serve, "_open", noted)
    monkeypatch.setattr(serve, "IDLE_S", 0.0)
    (home / "operation").mkdir()
    with Host(Run(home / "operation")) as host, contextlib.suppress(TunesmithError):
        serve.chat(host, ChatSpec(RunFolder(str(run.path)), 0, "cpu"))
    assert collects == [False]
    assert gc.isenabled(), "what answers make is collected"
