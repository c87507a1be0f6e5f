"""The loop and what it is put together from: one update, the clock of the steps, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.conftest import after_step, events, step_losses, train
from tests.engine.fused.test_model import adapted, compute
from tests.tiny_model import write_chats
from tunesmith_core import files
from tunesmith_core.checkpoint_manifest import read_manifest, sealed
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.train import assembly as assembly_module
from tunesmith_engine.train import evaluate, metrics
from tunesmith_engine.train import loop as loop_module
from tunesmith_engine.train.assembly import Assembly, make_parts
from tunesmith_engine.train.checkpoint import Snapshot
from tunesmith_engine.train.loss import Totals

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]


class TwoPortions:
    """A path that takes three rows first, then the others, and writes down what it is asked for."""

    arena = None
    objective = None

    def __init__(self) -> None:
        self.told: list[Any] = []

    def portions(self, examples: list[Example]) -> list[list[Example]]:
        return [examples[:3], examples[3:]]

    def add_gradients(self, portion: list[Example], totals: Totals, updater: object) -> torch.Tensor:
        self.told.append((len(portion), totals))
        return torch.tensor([0.25, float(len(portion))])

    def weights_changed(self) -> None:
        self.told.append("changed")

    @contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        self.told.append("makes room")
        yield
        self.told.append("is back")


@pytest.mark.parametrize("num_trained", [0, 1, 5])
def test_an_update_divides_by_the_trained_tokens_of_all_its_portions(num_trained: int) -> None:
    ids = np.arange(9, dtype=np.int32)
    trained = Example(ids, np.where(ids > 8 - num_trained, ids, IGNORED_LABEL).astype(np.int32))
    untrained = Example(ids, np.full(9, IGNORED_LABEL, np.int32))
    path, model = TwoPortions(), adapted("llama")
    parts = SimpleNamespace(model=model, compute=compute(), spec=RunSpec())
    assembly = Assembly(parts, path)  # type: ignore[arg-type]
    rates: list[float] = []
    assembly.updater = SimpleNamespace(  # type: ignore[assignment]
        goes_by_layer=False, update=lambda rate: rates.append(rate) or torch.tensor(7.0)
    )

    @contextmanager
    def at_rest() -> Iterator[None]:
        path.told.append("rests")
        yield
        path.told.append("rested")

    losses, norm = assembly.update([untrained] * 3 + [trained], 0.5, at_rest)
    totals = Totals(4, max(num_trained, 1), 4)
    shares = [(3, totals), (1, totals)]
    assert path.told == ["rests", *shares, "rested", "changed"]
    assert (losses.tolist(), norm.item(), rates) == ([0.5, 4.0], 7.0, [0.5])
    assert assembly.parameters.keys() == {name for name, p in model.named_parameters() if p.requires_grad}


def test_a_run_may_have_one_row(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    write_chats(tmp_path / "one.jsonl", 1)
    run = new_run(tiny_spec(data={"path": str(tmp_path / "one.jsonl")}, schedule={"max_steps": 1}))
    assert train(run) == 0
    assert len(step_losses(run)) == 1


def test_dropout_takes_part_in_training_and_pauses_are_no_part_of_a_step(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    now_s = [100.0]
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    real = evaluate.held_out

    def slow(*arguments: Any) -> Any:
        now_s[0] += 1000.0
        return real(*arguments)

    monkeypatch.setattr(loop_module, "held_out", slow)
    for dropout in (0.0, 0.5):
        settings = {"method": {"dropout": dropout}, "evaluation": {"percent": 20.0, "every_steps": 1}}
        run = new_run(tiny_spec(**settings, schedule={"max_steps": 2, "warmup_steps": 0}, hardware={"kernels": False}))
        assert train(run) == 0
        losses.append(step_losses(run))
        assert [event.data["step_s"] for event in events(run, "step")] == [0.0, 0.0]
    assert losses[0][1] != pytest.approx(losses[1][1], rel=1e-6)


def test_a_checkpoint_says_what_decides_the_bits_of_a_step(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec(schedule={"max_steps": 2}))
    assert train(run, lambda host: after_step(host, 1, host.on_signal)) == 5
    manifest = read_manifest(run.checkpoints_path / "step-000001")
    fingerprint = dict(manifest.fingerprint)
    assert [fingerprint.pop(name) for name in ("data", "tokens", "held_out")]
    assert fingerprint == {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "device": events(run, "hello")[0].data["device_name"],
        "dtype": "float32",
        "kernels": "fused",
        "threads": 1,
        "rows": 16,
        "pairs": "text",
    }
    state = files.read_json(run.checkpoints_path / "step-000001" / "state.json")
    assert (state["micro_batch_size"], state["num_kept_less"]) == (2, 0)
    # As a version before the fused path wrote it.
    del state["num_kept_less"]
    _rewrite(run, state)
    assert train(run) == 0
    assert files.read_json(run.checkpoints_path / "step-000002" / "state.json")["num_kept_less"] == 0


def _rewrite(run: Run, state: dict[str, Any]) -> None:
    folder = run.checkpoints_path / "step-000001"
    path, manifest = folder / "state.json", files.read_json(folder / "MANIFEST.json")
    files.atomic_write_json(path, state)
    manifest["files"]["state.json"] = {"bytes": path.stat().st_size, "sha256": files.sha256_file(path)}
    files.atomic_write_json(folder / "MANIFEST.json", sealed(manifest))


class Asked:
    """A preparation that writes down what it is asked for, and ends where a test says."""

    def __init__(self, has_tokenizer: bool = True, has_data: bool = True) -> None:
        self.told: list[str] = []
        self.has_tokenizer, self.has_data = has_tokenizer, has_data

    def begin(self, folder: Path) -> None:
        self.told.append(f"begin {folder.name}")

    def wait_for_tokenizer(self, should_stop: Callable[[], bool]) -> bool:
        self.told.append("tokenizer")
        return self.has_tokenizer

    def data(self, should_stop: Callable[[], bool]) -> None:
        self.told.append("data")
        assert not self.has_data


def test_a_stop_ends_the_making_of_parts_wherever_it_is(tiny_spec: MakeSpec, tiny_model: Path) -> None:
    spec = tiny_spec()
    for asked, entered, told in (
        (Asked(has_tokenizer=False), True, ["begin tiny", "tokenizer"]),
        (Asked(), False, ["begin tiny", "tokenizer", "enter data"]),
        (Asked(has_data=False), True, ["begin tiny", "tokenizer", "enter data", "data"]),
    ):

        def enter(phase: str, asked: Asked = asked, entered: bool = entered) -> bool:
            asked.told.append(f"enter {phase}")
            return entered

        assert make_parts(spec, compute(), asked, enter=enter, folder=tiny_model) is None  # type: ignore[arg-type]
        assert asked.told == told


def test_a_prompt_is_made_tokens_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RunSpec] = []
    monkeypatch.setattr(loop_module, "prompt_tokens", lambda spec, *_: asked.append(spec) or [9])
    data = SimpleNamespace(prompts={"Hi": [1, 2]}, system_prompt="Be brief.")
    parts = SimpleNamespace(data=data, spec=RunSpec(), folder=None)
    loop = SimpleNamespace(parts=parts)
    tokens = loop_module.Loop.prompt_tokens
    assert tokens(loop, "Hi", lambda: False) == [1, 2]  # type: ignore[arg-type]
    assert tokens(loop, "Ho", lambda: False) == [9]  # type: ignore[arg-type]
    assert [spec.data.system_prompt for spec in asked] == ["Be brief."], "as the rows have it"


def test_a_run_answers_as_before_it_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(loop_module, "generate", lambda *_, with_adapter: asked.append(with_adapter))
    loop = object.__new__(loop_module.Loop)
    loop._answers_as_before = False
    values = {"parts": SimpleNamespace(model=None, tokenizer=None), "path": SimpleNamespace(decoder=lambda: None)}
    vars(loop).update(values)
    monkeypatch.setattr(loop_module.Loop, "_at_rest", lambda _: nullcontext())
    loop._generate([1], 2, lambda: False)
    with suppress(ValueError), loop.without_adapter():
        loop._generate([1], 2, lambda: False)
        raise ValueError("broken")
    loop._generate([1], 2, lambda: False)
    assert asked == [True, False, True]


@pytest.mark.parametrize("compared", [None, {"improvement": {"mean": 1.0}}])
def test_held_out_rows_are_compared_at_rest(monkeypatch: pytest.MonkeyPatch, compared: object) -> None:
    asked: list[object] = []
    monkeypatch.setattr(loop_module, "compare", lambda *asks: asked.append(asks) or compared)
    monkeypatch.setattr(loop_module.Loop, "_at_rest", lambda _: nullcontext())
    monkeypatch.setattr(loop_module.Loop, "_fit", lambda _, work, _step: work())
    loop = object.__new__(loop_module.Loop)
    parts = SimpleNamespace(model="model", data=SimpleNamespace(eval=[7]), compute=SimpleNamespace(device="cpu"))
    vars(loop).update(parts=parts, path="path", _rollouts=None)
    assert loop.comparison(3, is_over := lambda: False, [2.5]) == compared
    assert asked == [("model", "path", [7], "cpu", is_over, [2.5])]


def test_computed_initial_values_reach_the_way_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = TwoPortions(), adapted("llama")
    parts = SimpleNamespace(model=model, compute=compute(), spec=RunSpec(), data=SimpleNamespace(train=[]))
    assembly = Assembly(parts, path)  # type: ignore[arg-type]
    monkeypatch.setattr(assembly_module, "begin", lambda *_: path.told.append("begun"))
    assembly.begin(parts)  # type: ignore[arg-type]
    assert path.told == ["makes room", "begun", "is back", "changed"]


def test_weights_that_do_not_fit_are_counted_and_the_first_is_named() -> None:
    def weights(**shapes: int) -> dict[str, torch.Tensor]:
        return {name: torch.zeros(size) for name, size in shapes.items()}

    assembly = SimpleNamespace(parameters=weights(a=1, b=2, c=3))
    spec = RunSpec()
    loop: Any = SimpleNamespace(assembly=assembly, parts=SimpleNamespace(spec=spec))
    check = loop_module.Loop._check_fits
    check(loop, Snapshot(1, weights(a=1, b=2, c=3), {}, {}, {}))
    check(loop, Snapshot(1, weights(a=1, b=2, c=3), {"a:exp_avg": torch.zeros(1)}, {}, {}))
    for saved, words in (
        (weights(a=1, b=5, c=4), "2 weights of the checkpoint don't fit the run, such as b: (5,) -> (2,)."),
        (weights(a=1, b=2, c=3, d=4), "1 weights of the checkpoint don't fit the run, such as d: (4,) -> None."),
    ):
        with pytest.raises(TunesmithError) as caught:
            check(loop, Snapshot(1, saved, {}, {}, {}))
        assert (caught.value.code, caught.value.message) == ("resume-refused", words)
    with pytest.raises(TunesmithError, match=r"optimizer\.name: adamw_8bit -> adamw"):
        check(loop, Snapshot(1, weights(a=1, b=2, c=3), {"a:state1": torch.zeros(1)}, {}, {}))
