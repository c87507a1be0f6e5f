"""A run from the first event to the adapter, in process and as the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.tiny_model import build_tiny_model
from tunesmith_core.environments import module_command
from tunesmith_core.protocol import post_command
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.train import loop as loop_module

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]


def test_run_learns_and_tells_its_story_in_order(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(
        tiny_spec(
            schedule={"max_steps": 12, "shuffle": False},
            evaluation={"percent": 25.0, "every_steps": 6, "sample_prompts": ["Hi"], "sample_max_tokens": 4},
        )
    )
    assert train(run) == 0
    kinds = [e.type for e in events(run) if e.type not in ("gpu", "log")]
    assert kinds[:2] == ["phase", "hello"]
    phases = [e.data["name"] for e in events(run, "phase")]
    assert phases[:5] == ["starting", "model", "data", "model", "training"]
    assert phases[-1] == "saving"
    assert kinds[-2:] == ["checkpoint", "result"]
    last = events(run, "checkpoint")[-1].data
    assert last["kept"][0] == last["step"]
    assert len(last["kept"]) == len(list(run.checkpoints_path.glob("step-*")))
    assert [e.data["step"] for e in events(run, "eval")] == [0, 6, 12]
    assert [e.data["step"] for e in events(run, "sample")] == [0, 6, 12]
    assert [e.data["step"] for e in events(run, "step")] == list(range(1, 13))
    losses = step_losses(run)
    assert losses[-1] < losses[0] - 0.3
    result = result_of(run)
    assert result["status"] == "finished"
    assert result["step"] == 12
    assert result["eval_loss_after"] < result["eval_loss_before"]
    assert result["artifacts"] == {"adapter": "adapter"}
    hello = events(run, "hello")[0].data
    assert hello["threads"] == 1
    assert hello["device"] == "cpu"
    setup = events(run, "setup")[0].data
    assert (setup["num_train_rows"], setup["num_eval_rows"], setup["total_steps"]) == (12, 4, 12)
    assert setup["num_trainable_parameters"] > 0
    assert setup["row_format"] == "messages"
    assert run.status().state == "finished"


def test_run_continues_after_a_sample_that_fails(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(*_: object, **__: object) -> str:
        raise TypeError("this model has no cache")

    monkeypatch.setattr(loop_module, "generate", generate)
    run = new_run(tiny_spec(evaluation={"percent": 0, "sample_every_steps": 4, "sample_prompts": ["Hi"]}))
    assert train(run) == 0
    warnings = [event.data for event in events(run, "warning")]
    assert [(w["code"], w["message"]) for w in warnings] == [
        ("sample-failed", f"Step {step}: this model has no cache")
        for step in (0, 4, 6)  # and what is saved
    ]
    assert len(step_losses(run)) == 6


def test_adapter_loads_in_plain_transformers_and_peft(tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path) -> None:
    run = new_run(tiny_spec())
    assert train(run) == 0
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(run.adapter_path)
    batch = tokenizer("What is 3 plus one?", return_tensors="pt")
    before = base(**batch).logits
    model = PeftModel.from_pretrained(base, run.adapter_path)
    assert not torch.equal(before, model(**batch).logits)
    output = model.generate(**batch, max_new_tokens=4, do_sample=False)
    assert output.shape[1] > batch["input_ids"].shape[1]
    config = json.loads((run.adapter_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_model)
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert "rows.jsonl (16 rows" in card
    assert "| Rank | 4 |" in card
    assert {p.dtype for p in load_file(run.adapter_path / "adapter_model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize(
    "method",
    [
        {"rslora": True},
        {"dora": True},
        {"bias": "lora_only"},
        {"dropout": 0.2},
        {"target_modules": ["q_proj", "v_proj"]},
        {"kind": "qlora"},
        {"kind": "qlora", "dora": True},
    ],
    ids=lambda method: ",".join(f"{key}={value}" for key, value in method.items()),
)
def test_every_method_trains_an_adapter(tiny_spec: MakeSpec, new_run: NewRun, method: dict[str, object]) -> None:
    run = new_run(tiny_spec(method=method, schedule={"max_steps": 8, "shuffle": False}))
    assert train(run) == 0, result_of(run)
    losses = step_losses(run)
    assert losses[-1] < losses[0]
    names = load_file(run.adapter_path / "adapter_model.safetensors").keys()
    if "target_modules" in method:
        assert all("q_proj" in name or "v_proj" in name for name in names)
    if method.get("dora"):
        assert any("magnitude" in name for name in names)


def test_eight_bit_optimizer_survives_a_resume(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    settings = {"optimizer": {"name": "adamw_8bit"}, "method": {"rank": 64}}
    whole = new_run(tiny_spec(**settings))
    assert train(whole) == 0
    parts = new_run(tiny_spec(**settings))
    assert train(parts, lambda host: after_step(host, 3, host.on_signal)) == 5
    assert train(parts) == 0
    assert step_losses(parts) == step_losses(whole)


def test_files_of_a_run_are_text_or_safetensors_never_pickle(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run) == 0
    written = [path for path in run.path.rglob("*") if path.is_file()]
    assert {path.suffix for path in written} <= {".json", ".jsonl", ".safetensors", ".md", ".jinja", ""}
    for path in written:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as tensors:
                assert list(tensors.keys())
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        else:
            path.read_text(encoding="utf-8")


def test_activation_checkpointing_changes_no_loss(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    plain, thrifty = new_run(tiny_spec()), new_run(tiny_spec(hardware={"activation_checkpointing": True}))
    assert train(plain) == train(thrifty) == 0
    assert step_losses(thrifty) == pytest.approx(step_losses(plain), rel=1e-5)


def test_same_seed_same_adapter_and_another_seed_another(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    runs = [new_run(tiny_spec(method={"dropout": 0.1}, schedule={"seed": seed})) for seed in (1, 1, 2)]
    for run in runs:
        torch.manual_seed(len(run.id))
        assert train(run) == 0
    first, second, third = ((run.adapter_path / "adapter_model.safetensors").read_bytes() for run in runs)
    assert first == second
    assert first != third


@pytest.mark.parametrize("bias", ["none", "all"])
def test_base_model_is_measured_as_it_was_before_training(
    tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path, bias: str
) -> None:
    model = build_tiny_model(tmp_path / "biased", attention_bias=True)
    sections = {
        "model": {"path": str(model)},
        "method": {"bias": bias},
        "optimizer": {"learning_rate": 0.1},
        "evaluation": {"percent": 25.0, "sample_prompts": ["Hi"], "sample_max_tokens": 4},
    }
    still = {**sections, "optimizer": {"learning_rate": 1e-12}}
    moving, unmoved = new_run(tiny_spec(**sections, schedule={"warmup_steps": 0})), new_run(tiny_spec(**still))
    assert train(moving) == train(unmoved) == 0
    first = [e.data for e in events(moving, "eval", "sample") if e.data["step"] == 0]
    true = [e.data for e in events(unmoved, "eval", "sample") if e.data["step"] == 0]
    assert first[0]["loss"] == pytest.approx(true[0]["loss"], rel=1e-6)
    assert first[1]["text"] == true[1]["text"]
    assert result_of(moving)["eval_loss_before"] == first[0]["loss"]
    assert result_of(moving)["eval_loss_after"] != pytest.approx(first[0]["loss"], rel=1e-3)
    order = [e.type for e in events(moving, "eval", "step")]
    assert order[:2] == (["step", "eval"] if bias == "none" else ["eval", "step"])


def test_early_stopping_ends_a_run_that_gets_no_better(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(
        tiny_spec(
            optimizer={"learning_rate": 1e-12},
            schedule={"max_steps": 50},
            evaluation={"percent": 25.0, "every_steps": 1, "early_stopping": 2},
        )
    )
    assert train(run) == 0
    assert result_of(run)["status"] == "finished"
    assert result_of(run)["step"] < 50


@pytest.mark.timeout(300)
def test_real_command_starts_at_once_and_prints_nothing(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    post_command(run.control_path, "ping")
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(run.path))
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    assert b"Warning" not in done.stderr
    starting, hello = events(run, "phase")[0], events(run, "hello")[0]
    assert starting.seq == 1
    assert starting.data["name"] == "starting"
    assert hello.data["pid"] > 0
    # Importing PyTorch takes longer than a second, and meanwhile there must be signs of life.
    assert any(starting.t <= event.t <= hello.t for event in events(run, "gpu"))
    assert run.heartbeat_path.stat().st_mtime >= hello.t
    assert [event.data["command"] for event in events(run, "ack")] == ["ping"]


@pytest.mark.skipif(os.name == "nt", reason="Windows renames no folder that a process works in")
@pytest.mark.timeout(300)
def test_a_run_that_is_renamed_while_it_trains_is_saved_where_it_is(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec(schedule={"max_steps": 100_000}, saving={"every_steps": 1}))
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(run.path))
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=run.path.parent) as engine:
        while not events(run, "step"):
            assert engine.poll() is None, engine.stderr and engine.stderr.read()
            time.sleep(0.05)
        renamed = Run(run.path.rename(run.path.with_name("renamed")))
        # Another run takes the name; nothing may get into it.
        taken = new_run(tiny_spec())
        before = sorted(taken.path.rglob("*"))
        assert taken.path == run.path
        post_command(renamed.control_path, "stop", mode="save")
        _, written = engine.communicate()
    assert sorted(taken.path.rglob("*")) == before
    assert result_of(renamed)["status"] == "stopped", (result_of(renamed), written)
    assert (renamed.adapter_path / "adapter_model.safetensors").is_file()
    assert [event.seq for event in events(renamed)] == list(range(1, len(events(renamed)) + 1))
    saved = events(renamed, "checkpoint")[-1].data
    assert sorted(f"step-{step:06d}" for step in saved["kept"]) == sorted(
        path.name for path in renamed.checkpoints_path.glob("step-*")
    )
    assert [event.data["code"] for event in events(renamed, "warning")] == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_works_on_the_cpu_too(tiny_spec: MakeSpec, new_run: NewRun, dtype: str) -> None:
    run = new_run(tiny_spec(model={"dtype": dtype}, schedule={"max_steps": 8, "shuffle": False}))
    assert train(run) == 0, result_of(run)
    assert step_losses(run)[-1] < step_losses(run)[0]
    assert events(run, "setup")[0].data["dtype"] == dtype
    # Products of float16 in parts of buffers would take seconds a step on a processor.
    not_fused = [event for event in events(run, "warning") if event.data["code"] == "not-fused"]
    assert len(not_fused) == (dtype == "float16")


def test_biases_are_trained_where_asked_for(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path / "biased", attention_bias=True)
    run = new_run(tiny_spec(model={"path": str(model)}, method={"bias": "all"}))
    assert train(run) == 0
    saved = load_file(run.adapter_path / "adapter_model.safetensors")
    assert any(name.endswith("q_proj.base_layer.bias") and bool(tensor.any()) for name, tensor in saved.items())


def test_data_that_vanishes_during_the_run_does_no_harm(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, (tmp_path / "rows.jsonl").unlink)) == 0
    assert (run.adapter_path / "README.md").is_file()


def test_a_plain_run_imports_nothing_of_the_fast_path(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    """What trains without fused kernels starts without loading them."""
    run = new_run(tiny_spec(hardware={"kernels": False}, schedule={"max_steps": 1}))
    code = (
        "import sys\n"
        "from tunesmith_engine.__main__ import main\n"
        f"assert main(['run', '--run-dir', {str(run.path)!r}]) == 0\n"
        "rooms = ('fused', 'kernels', 'attention', 'proof', 'packed')\n"
        "loaded = [name for name in sys.modules if name.startswith('tunesmith_engine.')]\n"
        "print([name for name in loaded if name.split('.')[1] in rooms])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[0] == "[]"
