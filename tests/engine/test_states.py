"""Runs of a model with states in attention's place: what they learn, how they resume, and what memory is planned."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.engine.conftest import events, result_of, step_losses, train
from tests.engine.exact_resume import check_resume
from tests.engine.fused import families
from tunesmith_core import fused_memory, mixer_memory
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.memory import MemoryPlanner
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
QUICK = ("qwen3.5", "lfm2", "bamba")


OTHERS = ("granite-hybrid", "mamba2", "nemotron-h", "falcon-h1")
KINDS = {"mamba2": [2], "nemotron-h": [1, 1], "falcon-h1": [2]}
"""Layers of each kind; of the other models one has attention and two have states."""


@pytest.fixture(scope="module", params=[*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def state_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of a small model with states and the tiny model's tokenizer."""
    folder = tmp_path_factory.mktemp("model") / "states"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    model = families.make(request.param, vocab_size=len(AutoTokenizer.from_pretrained(tiny_model)))
    model.save_pretrained(folder)
    folder.with_name("kinds").write_text(json.dumps(KINDS.get(request.param, [1, 2])))
    return folder


@pytest.mark.long
def test_fused_and_plain_runs_learn_the_same(tiny_spec: MakeSpec, new_run: NewRun, state_model: Path) -> None:
    model = {"path": str(state_model)}
    fused, plain = (
        new_run(tiny_spec(model=model, **sections)) for sections in ({}, {"hardware": {"kernels": False}})
    )
    assert train(fused) == train(plain) == 0, (result_of(fused), result_of(plain))
    kernels = " ".join(events(fused, "setup")[-1].data["kernels"])
    assert re.search(r"(\d) of \1 layers run on Tunesmith's own path", kernels)
    assert not events(fused, "warning")
    assert step_losses(fused) == pytest.approx(step_losses(plain), rel=1e-4)


@pytest.mark.long
def test_a_stopped_run_resumes_to_the_bit(tiny_spec: MakeSpec, new_run: NewRun, state_model: Path) -> None:
    check_resume(tiny_spec(model={"path": str(state_model)}, evaluation={"percent": 20}), new_run)


@pytest.mark.parametrize("level", fused_memory.LEVELS)
@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        ("lora", 5000),
        pytest.param("qlora", 5000, marks=pytest.mark.long),
        pytest.param("lora", 100_000, marks=pytest.mark.long),
    ],
)
def test_planner_and_engine_count_alike(
    tiny_spec: MakeSpec, state_model: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tokens: int, level: str
) -> None:
    monkeypatch.setattr("tunesmith_engine.fused.memory.measure_matmul_rate", lambda *_: 3e10)
    spec = tiny_spec(model={"path": str(state_model)}, method={"kind": kind, "rank": 16})
    card, compute = read_model_card(state_model), choose_compute(spec)
    model = attach_adapter(load_model(state_model, compute, kind == "qlora"), spec)
    assembly = Assembly(model, recognise(model), compute)
    ours = fused_memory.activation_bytes(spec, card, 4, tokens, level)
    ours += fused_memory.logit_bytes(card, 4, tokens, level)
    theirs = MemoryPlanner(assembly, tokens, None, 8.0).plan(level).peak_bytes
    theirs -= 8 * assembly.arena.weights.numel() + assembly.scratch.num_bytes
    # Small models' columns are aligned otherwise on a processor, and attention's own results are not counted there.
    kinds = [kind.num_layers for kind in mixer_memory.mixers(card, False)]
    assert kinds == json.loads(state_model.with_name("kinds").read_text())
    assert theirs <= ours <= 1.3 * theirs
