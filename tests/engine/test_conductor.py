"""What happens between the steps, told in order: without a model, whoever takes the steps."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.protocol import Command
from tunesmith_core.spec import RunSpec
from tunesmith_engine.train import conductor as conductor_module
from tunesmith_engine.train.checkpoint import Snapshot
from tunesmith_engine.train.conductor import Conductor, Progress
from tunesmith_engine.train.evaluate import HeldOut, Written
from tunesmith_engine.train.metrics import StepReport

BACK = ["clock", "alive"]
"""After anything that took time between two steps."""


class World:
    """A run's host, rows, checkpoints and steps, all of which write down what they are asked for.

    Attributes:
        told: what happened, in order.
        now_s: the clock.
        losses: of the steps, by their number; 2.0 where it is missing.
        held_out_losses: of the evaluations, in their order.
        late: a step's numbers arrive after the next was submitted, as on a GPU.
    """

    def __init__(self, folder: Path, total_steps: int, **sections: dict[str, Any]) -> None:
        self.told: list[Any] = []
        self.now_s = 1000.0
        self.losses: dict[int, float] = {}
        self.held_out_losses: Iterator[float] = iter(())
        self.answers: dict[str, str | Exception | None] = {}
        self.compared: dict[str, Any] | None = None
        self.late = True
        self.reports: list[StepReport] = []
        self.commands: list[Command] = []
        self.stop_mode: str | None = None
        self.refuse: Callable[[], object] = lambda: None
        self.faults: list[OSError] = []
        self.weights = (torch.device("cpu"), "plain")
        self.path, self.adapter_path, self.tmp_path = folder, folder / "adapter", folder / "tmp"
        self.writes = True
        self.run, self.plan = self, SimpleNamespace(total_steps=total_steps)
        spec = RunSpec.from_dict({"version": 1, "name": "r", "model": {"path": "/models/base"}, **sections})
        data = SimpleNamespace(train=[1, 2], eval=[3], notes={}, pairs="chat", questions={}, system_prompt="")
        data.hashes = lambda: {"tokens": "t" * 16, "held_out": "h" * 16}
        self.parts = SimpleNamespace(
            spec=spec, data=data, compute=SimpleNamespace(device=torch.device("cpu")), method=self, folder=folder
        )
        self.parts.model, self.parts.tokenizer = "the model", "the tokenizer"
        self.export_notes: dict[str, str] = {}

    def conductor(self) -> Conductor:
        return Conductor(self, self.parts, SimpleNamespace(save=self.save_checkpoint, steps=lambda: [9]), self)  # type: ignore[arg-type]

    # As the host

    def phase(self, name: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        self.told.append(f"phase {name} {done} {total} {unit}".rstrip())

    def event(self, kind: str, /, **data: Any) -> None:
        self.told.append((kind, data))

    def warning(self, code: str, message: str) -> None:
        self.told.append(f"warning {code}: {message}")

    def progress(self, step_s: float | None = None) -> None:
        self.told.append("alive" if step_s is None else f"a step of {step_s:g} s")

    def journal_fault(self) -> OSError | None:
        return self.faults.pop() if self.faults else None

    def stop_requested(self) -> bool:
        return self.stop_mode is not None

    def pause(self, problem: TunesmithError) -> None:
        self.told.append(f"paused: {problem.code}")

    def end_pause(self) -> None:
        self.told.append("goes on")

    def take_commands(self) -> list[Command]:
        waiting, self.commands = self.commands, []
        return waiting

    def ack(self, command: Command, ok: bool = True, message: str = "") -> None:
        self.told.append(f"{command.name}: {'done' if ok else message}")

    # As the trainee

    def flush(self) -> list[StepReport]:
        waiting, self.reports = self.reports, []
        return waiting

    def restart_clock(self) -> None:
        self.told.append("clock")

    def held_out(self, step: int, with_adapter: bool, should_stop: Callable[[], bool]) -> HeldOut | None:
        self.now_s += 1.234375
        self.told.append(f"measures {'the adapter' if with_adapter else 'the base model'} at {step}")
        return None if should_stop() else HeldOut(next(self.held_out_losses, 3.0), 7, {})

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        self.told.append("adapter off")
        yield
        self.told.append("adapter on")

    def prompt_tokens(self, prompt: str, should_stop: Callable[[], bool]) -> list[int] | None:
        return None if should_stop() else list(prompt.encode())

    def answer(self, prompt: list[int], max_tokens: int, should_stop: Callable[[], bool]) -> Written | None:
        assert max_tokens == self.parts.spec.evaluation.sample_max_tokens
        answer = self.answers.get(bytes(prompt).decode(), "Ho")
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else Written(answer, 9 if answer == "Well" else 0)

    def base_losses(self, is_over: Callable[[], bool]) -> list[float]:
        return [] if is_over() else [2.5, 3.5]

    def comparison(
        self, step: int, is_over: Callable[[], bool], before: list[float] | None
    ) -> dict[str, Any] | None:
        if before is not None:
            self.told.append(f"compared with {before}")
        return None if is_over() else self.compared

    def snapshot(self, step: int) -> Snapshot:
        return Snapshot(step, {}, {}, {}, {"of": step})

    def restore(self, snapshot: Snapshot) -> None:
        self.told.append(f"restored {snapshot.step}")

    def fingerprint(self) -> dict[str, Any]:
        return {"torch": "2.6", "kernels": "fused"}

    # As the checkpoints and the method

    def save_checkpoint(self, snapshot: Snapshot, fingerprint: dict[str, Any]) -> Path:
        self.now_s += 0.984375
        self.refuse()
        self.saved = snapshot, fingerprint
        folder = self.path / "checkpoints" / f"step-{snapshot.step:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights").write_bytes(b"123")
        return folder

    def save(self, *arguments: object) -> dict[str, str]:
        self.told.append(("exported", *arguments[:2], *arguments[3:]))
        return self.export_notes

    # What a test asks for

    def step(self, conductor: Conductor) -> None:
        """Take a step of a quarter of a second."""
        progress = conductor.progress
        progress.step += 1
        progress.num_tokens += 100
        self.now_s += 0.25
        loss = self.losses.get(progress.step, 2.0)
        report = StepReport(progress.step, progress.step / 3, 1e-4, progress.num_tokens, 100, loss, 0.5, 0.25)
        due = self.flush()
        self.reports = [report]
        conductor.take(due if self.late else [*due, *self.flush()])

    def train(self, conductor: Conductor) -> None:
        """Do as the loop does."""
        conductor.begin()
        while conductor.wants_step():
            self.step(conductor)
            conductor.do_what_is_due()
        conductor.end()

    def lines(self) -> list[str]:
        """Return what was told, events by their kind and step."""
        return [line if isinstance(line, str) else f"{line[0]} {line[1]['step']}" for line in self.told]

    def steps_of(self, kind: str) -> list[int]:
        return [line[1]["step"] for line in self.told if isinstance(line, tuple) and line[0] == kind]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line[1] for line in self.told if isinstance(line, tuple) and line[0] == kind]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Make a run of some steps whose clock stands still where nothing moves it."""

    def new(total_steps: int, **sections: dict[str, Any]) -> World:
        data = tmp_path / "rows.jsonl"
        data.write_text("{}\n")
        world = World(tmp_path, total_steps, **{"data": {"path": str(data)}, **sections})
        monkeypatch.setattr(conductor_module.time, "monotonic", lambda: world.now_s)
        return world

    return new


Make = Callable[..., World]
HI = {"sample_prompts": ["Hi"]}


def test_a_run_tells_its_story_in_order(make: Make) -> None:
    """Numbers come late, yet never behind what was made of them; every pause restarts the clock of the steps."""
    world = make(3, evaluation={**HI, "every_steps": 3, "sample_every_steps": 2}, saving={"every_steps": 2})
    world.parts.data.notes = {"dataset-raw-text": "No template."}
    world.train(world.conductor())
    step = ["a step of 0.25 s"]
    assert world.lines() == [
        *["phase training 0 3 steps", "warning dataset-raw-text: No template."],
        *[*step, "step 1", "checkpoint 1", *BACK],
        *["phase evaluating 0 3 steps", "measures the base model at 1", "alive", "phase training 1 3 steps", *BACK],
        *["eval 0", "adapter off", "alive", "sample 0", *BACK, "adapter on"],
        *[*step, "step 2", "alive", "sample 2", *BACK, "checkpoint 2", *BACK],
        *[*step, "step 3"],
        *["phase evaluating 3 3 steps", "measures the adapter at 3", "alive", "phase training 3 3 steps", *BACK],
        *["eval 3", "phase evaluating 3 3 steps", "alive", "phase training 3 3 steps", *BACK],
        *["alive", "sample 3", *BACK],
    ]


@pytest.mark.parametrize(("total", "every"), [(6, 1), (25, 2), (30, 3)])
def test_a_run_is_looked_at_and_saved_ten_times_unless_told_otherwise(make: Make, total: int, every: int) -> None:
    world = make(total, evaluation=HI, saving={"every_steps": 0, "every_minutes": 1000})
    world.train(world.conductor())
    regular = list(range(every, total + 1, every))
    looks = [0, *regular, *([total] if total % every else [])]
    assert (world.steps_of("eval"), world.steps_of("sample")) == (looks, looks)
    assert world.steps_of("checkpoint") == sorted({1, *regular} - {total}), "the last is saved with the run's end"


def test_numbers_are_rounded_and_count_from_the_start_of_the_run(make: Make) -> None:
    world = make(2, evaluation={"every_steps": 2}, saving={"every_steps": 100})
    world.late = False
    conductor = world.conductor()
    world.train(conductor)
    first, last = world.events("step")
    assert first == {
        "step": 1,
        "epoch": 0.3333,
        "loss": 2.0,
        "lr": 1e-4,
        "grad_norm": 0.5,
        "tokens": 100,
        "tokens_per_s": 400.0,
        "step_s": 0.25,
    }
    assert (last["epoch"], last["tokens"]) == (0.6667, 200)
    assert world.events("eval")[0] == {"step": 0, "loss": 3.0, "num_tokens": 7, "seconds": 1.234}
    assert world.events("checkpoint") == [
        {"step": 1, "path": "checkpoints/step-000001", "bytes": 3, "seconds": 0.984, "kept": [9]}
    ]
    assert conductor.seconds() == round(2 * 0.25 + 2 * 1.234375 + 0.984375, 3)
    assert conductor.finish()["seconds"] == pytest.approx(2 * 0.25 + 2 * 1.234375 + 2 * 0.984375, abs=2e-3)
    report = StepReport(3, 1.0, 1e-4, 300, 100, 2.0, 0.5, 0.0)
    conductor.take([report])
    assert world.events("step")[-1]["tokens_per_s"] == pytest.approx(1e11), "a clock may stand still"
    conductor.take([StepReport(4, 1.0, 1e-4, 400, 100, 2.0, 0.5, 0.123456)])
    assert (world.events("step")[-1]["step_s"], world.events("step")[-1]["tokens_per_s"]) == (0.1235, 810.0)


def test_on_a_gpu_a_step_tells_its_peak_of_memory(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(1)
    world.parts.compute.device = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 77 + device.index)
    world.step(conductor := world.conductor())
    conductor.take(world.flush())
    assert world.events("step")[0]["vram_peak_bytes"] == 78


@pytest.mark.parametrize(
    ("held_out", "steps"),
    [((5, 4, 4, 5, 9), 3), ((3, 4, 5, 9), 2), ((5, 4, 6, 3, 3, 3, 9), 5), ((5, 4, 6, 3, 2, 3, 1), 6)],
)
def test_patience_counts_evaluations_without_a_gain(make: Make, held_out: tuple[float, ...], steps: int) -> None:
    """The first loss is the base model's; as good as before is no gain."""
    world = make(6, evaluation={"every_steps": 1, "early_stopping": 2})
    world.held_out_losses = iter(map(float, held_out))
    world.train(conductor := world.conductor())
    assert conductor.progress.step == steps
    ended = conductor.finish()
    assert (ended["status"], ended["step"]) == ("finished", steps)
    assert (ended["eval_loss_before"], ended["eval_loss_after"]) == (held_out[0], held_out[steps])


def test_steps_without_a_number_are_few_or_the_end(make: Make) -> None:
    world = make(6)
    world.losses = dict.fromkeys((1, 2, 4, 5), math.nan)
    world.train(world.conductor())
    told = [f"warning nan-loss: Step {step}: the loss is NaN or infinite. The update was skipped." for step in (1, 2)]
    assert [line for line in world.lines() if "warning" in line][:2] == told
    for bad, step in ((dict.fromkeys((2, 3, 4), math.inf), 4), (dict.fromkeys((1, 2), math.nan), 2)):
        world = make(step)
        world.losses = bad
        with pytest.raises(TunesmithError) as caught:
            world.train(world.conductor())
        words = "for 3 steps in a row, up to step 4." if step == 4 else "in every step. Nothing was learned."
        assert (caught.value.code, caught.value.message) == ("nan-loss", f"The loss was NaN or infinite {words}")


@pytest.mark.parametrize("bias", ["none", "all"])
def test_the_base_model_is_looked_at_once(make: Make, bias: str) -> None:
    """After the first step, unless trained biases can't be switched off; a stop on the way leaves it to the rest."""
    world = make(3, evaluation={**HI, "every_steps": 100}, method={"bias": bias})
    world.train(conductor := world.conductor())
    assert [line for line in world.lines() if line.startswith(("measures", "adapter"))] == (
        ["measures the base model at 1", "adapter off", "adapter on", "measures the adapter at 3"]
        if bias == "none"
        else ["measures the adapter at 0", "measures the adapter at 3"]
    )
    assert conductor.progress.base_model_seen
    assert world.lines().index("eval 0") < world.lines().index("step 2")
    world = make(3, evaluation=HI, method={"bias": bias})
    conductor = world.conductor()
    world.stop_mode = "save" if bias == "all" else None
    conductor.begin()
    world.stop_mode = "save"
    conductor.do_what_is_due()
    assert not conductor.progress.base_model_seen
    assert (world.steps_of("eval"), world.steps_of("sample")) == ([], [])


def test_of_whole_weights_the_base_model_is_kept_in_mind_before_they_change(make: Make) -> None:
    world = make(2, evaluation={"every_steps": 100})
    world.parts.spec.adapter.kind = "full"
    world.compared = {"improvement": {}}
    world.train(world.conductor())
    told = world.lines()
    before = [line for line in told[: told.index("step 1")] if line not in BACK and line.startswith("phase")]
    looks = ["phase evaluating 0 2 steps", "phase training 0 2 steps"]
    assert before == ["phase training 0 2 steps", *looks, *looks]
    assert "compared with [2.5, 3.5]" in told
    world = make(2, evaluation={"every_steps": 100})
    world.parts.spec.adapter.kind, world.parts.data.eval = "full", []
    world.train(world.conductor())
    assert not any(line.startswith("compared with") for line in world.lines())


def test_an_evaluation_without_a_number_ends_the_run(make: Make) -> None:
    for held_out, saved, words in (
        ([math.nan], [1], "The evaluation loss of the base model itself is NaN or infinite."),
        ([3.0, math.inf], [1, 2], "Step 2: the evaluation loss is NaN or infinite."),
    ):
        world = make(4, evaluation={"every_steps": 2}, saving={"every_steps": 100})
        world.held_out_losses = iter(held_out)
        with pytest.raises(TunesmithError) as caught:
            world.train(world.conductor())
        assert (caught.value.code, caught.value.message) == ("nan-loss", words)
        assert world.steps_of("checkpoint") == saved


def test_samples_that_fail_are_warnings(make: Make) -> None:
    prompts = ["none", "short", "broken", "fine"]
    world = make(2, evaluation={"sample_prompts": prompts, "sample_every_steps": 2})
    world.parts.data.eval = []
    world.answers = {"short": None, "broken": ValueError("x" * 100_000), "fine": "Well"}
    world.late = False
    conductor = world.conductor()
    conductor.progress.base_model_seen = True
    world.train(conductor)
    assert world.events("sample") == [
        {"step": 2, "prompt": "none", "text": "Ho", "cut_at_tokens": 0},
        {"step": 2, "prompt": "fine", "text": "Well", "cut_at_tokens": 9},
    ]
    short, broken = (line for line in world.lines() if line.startswith("warning"))
    assert short == "warning cuda-oom: There was not enough memory for a sample. It was skipped."
    assert broken.startswith("warning sample-failed: Step 2: xxx")
    assert len(broken) == len("warning sample-failed: Step 2: ") + conductor_module.MAX_MESSAGE_CHARS
    assert world.lines()[-2:] == BACK


def test_commands_are_answered_each(make: Make) -> None:
    world = make(5, evaluation={"every_steps": 100}, saving={"every_steps": 100})
    conductor = world.conductor()
    conductor.begin()
    world.step(conductor)
    conductor.progress.base_model_seen = True
    conductor.do_what_is_due()
    del world.told[:]
    world.step(conductor)
    asked = [("checkpoint", {}), ("evaluate", {}), ("sample", {"prompt": " Hi "}), ("sample", {"prompt": " "})]
    world.commands = [Command(str(place), name, data) for place, (name, data) in enumerate([*asked, ("sample", {})])]
    assert conductor.wants_step()
    assert [line for line in world.lines() if line not in BACK and "phase" not in line and "measures" not in line] == [
        *["a step of 0.25 s", "step 2", "checkpoint 2", "checkpoint: done", "eval 2", "evaluate: done"],
        *["sample 2", "sample: done", "sample: A sample needs a prompt.", "sample: A sample needs a prompt."],
    ]
    assert world.events("sample")[0]["prompt"] == "Hi"
    world.parts.data.eval = []
    world.commands = [Command("6", "evaluate", {})]
    assert conductor.wants_step()
    assert world.lines()[-1] == "evaluate: This run has no evaluation data."

    def refuse() -> None:
        raise OSError(28, "No space left on device", "/disk")

    world.refuse, world.stop_mode = refuse, "save"
    world.commands = [Command("7", "checkpoint", {})]
    assert not conductor.wants_step()
    assert world.lines()[-1].startswith("checkpoint: /disk")


def test_no_step_is_taken_that_the_journal_cannot_tell_of(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunesmith_engine.patience.FIRST_PAUSE_S", 0.0)
    world = make(5)
    conductor = world.conductor()
    assert conductor.wants_step()
    assert world.told == []
    fault = OSError(28, "No space left on device", "/disk")
    world.faults = [fault, fault]
    assert conductor.wants_step()
    assert world.told == ["paused: disk-full", "goes on", *BACK]
    world.faults, world.stop_mode = [fault] * 9, "save"
    assert not conductor.wants_step()


def test_minutes_make_a_save_due_as_steps_do(make: Make) -> None:
    world = make(5, saving={"every_steps": 100, "every_minutes": 2})
    world.parts.data.eval = []
    conductor = world.conductor()
    conductor.begin()
    for waited_s in (0.25, 119.5, 0.5, 119.5):
        world.now_s += waited_s - 0.25
        world.step(conductor)
        conductor.do_what_is_due()
    assert world.steps_of("checkpoint") == [1, 3], "after two minutes exactly"


def test_a_resumed_run_goes_on_where_it_was(make: Make) -> None:
    """What a stop cut short is made up for, and what was done is not done again."""
    for seen, eval_step, expected in ((False, None, [0, 4]), (True, None, [4]), (True, 4, []), (True, 2, [4])):
        world = make(8, evaluation={"every_steps": 2})
        conductor = world.conductor()
        progress = {"step": 4, "num_tokens": 40, "seconds": 60.0, "base_model_seen": seen, "eval_step": eval_step}
        conductor.restore(Snapshot(4, {}, {}, {}, {"progress": progress}), {"pairs": "chat"}, [])
        assert world.told == ["restored 4"]
        assert conductor.progress == Progress(4, 40, 60.0, seen, eval_step=eval_step)
        conductor.begin()
        assert world.told[1] == "phase training 4 8 steps"
        assert world.steps_of("eval") == expected
        assert conductor.seconds() == pytest.approx(60.0 + 1.234375 * len(expected), abs=1e-3)


def test_what_differs_from_the_checkpoint_is_told(make: Make) -> None:
    world = make(8)
    conductor = world.conductor()
    snapshot = Snapshot(4, {}, {}, {}, {"progress": {"step": 4}})
    conductor.save()
    same = world.saved[1]
    digest = hashlib.sha256(b"{}\n").hexdigest()[:16]
    assert conductor.data_hash == digest
    assert same == {
        "torch": "2.6",
        "kernels": "fused",
        "rows": 2,
        "pairs": "chat",
        "data": digest,
        "tokens": "t" * 16,
        "held_out": "h" * 16,
    }
    del world.told[:]
    conductor.restore(snapshot, same, [])
    assert world.told == ["restored 4"]
    then = {"torch": "2.5", "rows": 3, "data": "0", "tokens": "0", "held_out": "0", "gone": 1}
    conductor.restore(snapshot, then, [Message("A setting changed.")])
    assert world.told[1] == (
        "warning resume-differs: The run continues under different conditions.\n"
        "A setting changed.\n"
        "torch: 2.5 -> 2.6. Rounding differs, so the losses can differ slightly.\n"
        "rows: 3 -> 2. The remaining steps train on other rows.\n"
        "pairs: text -> chat. From here on, rows become other tokens.\n"
        "The data changed, so the remaining steps train on other rows.\n"
        "The training rows are not the same as before, or become other tokens.\n"
        "The held-out rows changed, so earlier evaluation losses can't be compared with new ones."
    )


def test_the_end_says_what_came_of_the_run(make: Make) -> None:
    results: dict[str, tuple[Any, ...]] = {}
    for stop_mode, steps in ((None, 2), ("save", 2), ("discard", 2), ("save", 1), ("discard", 1), ("save", 0)):
        world = make(2, evaluation={"every_steps": 2})
        world.export_notes = {"adapter-class-differs": "Another class."}
        conductor = world.conductor()
        conductor.begin()
        for _ in range(steps):
            world.step(conductor)
        world.stop_mode = stop_mode
        ended = conductor.finish()
        story = [line for line in world.told if isinstance(line, tuple) and line[0] == "exported"]
        results[f"{stop_mode} {steps}"] = (ended["status"], ended["code"], ended["step"], ended["artifacts"])
        saved = bool(steps) and stop_mode != "discard"
        assert story == [("exported", "the model", "the tokenizer", world.adapter_path, world.tmp_path)] * saved
        assert world.told.count("phase saving 0 0") == saved
        assert world.told.count("warning adapter-class-differs: Another class.") == saved
        assert world.steps_of("checkpoint") == [steps] * saved
    made = {"adapter": "adapter"}
    assert results == {
        "None 2": ("finished", None, 2, made),
        "save 2": ("finished", None, 2, made),
        "discard 2": ("stopped", None, 2, {}),
        "save 1": ("stopped", None, 1, made),
        "discard 1": ("stopped", None, 1, {}),
        "save 0": ("stopped", None, 0, {}),
    }


@pytest.mark.parametrize(
    ("stop_mode", "resumed", "words"),
    [
        ("save", True, "Steps after 4 were not saved."),
        ("save", False, "Nothing was saved."),
        ("discard", True, None),
    ],
)
def test_a_stop_that_could_not_save_is_a_failure(make: Make, stop_mode: str, resumed: bool, words: str | None) -> None:
    world = make(8, evaluation={"every_steps": 100})
    conductor = world.conductor()
    if resumed:
        conductor.restore(Snapshot(4, {}, {}, {}, {"progress": {"step": 4}}), {"pairs": "chat"}, [])
    world.step(conductor)
    world.stop_mode = "save"

    def refuse(*_: object) -> Path:
        # Whoever waits for a full disk may ask for less.
        world.stop_mode = stop_mode
        raise OSError(28, "No space left on device", "/disk")

    world.refuse = refuse
    ended = conductor.finish()
    assert (ended["status"], ended["step"]) == ("failed" if words else "stopped", 5 if resumed else 1)
    assert (ended["code"], ended["artifacts"]) == ("disk-full" if words else None, {})
    errors = world.events("error")
    assert [event["code"] for event in errors] == ["disk-full"] * bool(words)
    assert all(event["message"].endswith(words) for event in errors)
