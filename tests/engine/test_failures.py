"""Every failure ends as a coded error: bad input through the engine itself, library errors by their words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tunesmith_core import memory_limits
from tunesmith_core.environments import module_command
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.failures import translate
from tunesmith_engine.host import Host
from tunesmith_engine.methods.sft import SupervisedFineTuning
from tunesmith_engine.model.load import load_config
from tunesmith_engine.train import assembly as assembly_module
from tunesmith_engine.train import loop as loop_module

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def own_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def _remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def _garble_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 5000)


def _garble_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


OWN_CODE = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}


def _change_config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def _remove_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def _remove_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("damage", "code", "exit_code"),
    [
        (_remove_weights, "model-files-missing-or-corrupt", 2),
        (_only_pickle, "model-pickle-refused", 2),
        (_cut_weights, "model-files-missing-or-corrupt", 2),
        (_garble_weights, "model-files-missing-or-corrupt", 2),
        (_garble_config, "model-files-missing-or-corrupt", 2),
        (_change_config(model_type="brandnew"), "transformers-version-mismatch", 3),
        (_change_config(model_type="brandnew", auto_map=OWN_CODE), "model-kind-unsupported", 3),
        (_change_config(num_hidden_layers=3), "model-files-missing-or-corrupt", 2),
        (_change_config(hidden_size=32), "model-files-missing-or-corrupt", 2),
        (_remove_template, "dataset-chat-template-missing", 2),
        (_remove_tokenizer, "model-files-missing-or-corrupt", 2),
    ],
)
def test_bad_model_folder(
    tiny_spec: MakeSpec,
    new_run: NewRun,
    own_model: Path,
    damage: Callable[[Path], None],
    code: str,
    exit_code: int,
) -> None:
    damage(own_model)
    run = new_run(tiny_spec(model={"path": str(own_model)}))
    assert train(run) == exit_code
    (error,) = events(run, "error")
    assert error.data["code"] == code, error.data
    assert error.data["hint"]
    assert (result_of(run)["status"], result_of(run)["code"]) == ("failed", code)
    assert run.status().state == "failed"
    assert not events(run, "step")
    assert not run.adapter_path.exists()


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./nowhere", "nowhere"])
def test_missing_model_folder(tiny_spec: MakeSpec, new_run: NewRun, path: str) -> None:
    run = new_run(tiny_spec(model={"path": path}))
    assert train(run) == 2
    assert result_of(run)["code"] == "model-files-missing-or-corrupt"


def test_code_in_a_model_folder_never_runs(tiny_spec: MakeSpec, new_run: NewRun, own_model: Path) -> None:
    proof = own_model.parent / "ran"
    (own_model / "evil.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    _change_config(
        auto_map=OWN_CODE,
        trust_remote_code=True,
        _attn_implementation_internal="evil/kernel",
        attn_implementation="evil/kernel",
    )(own_model)
    run = new_run(tiny_spec(model={"path": str(own_model)}))
    assert train(run) == 0, result_of(run)
    assert not proof.exists()


def test_a_model_that_needs_code_of_its_own_is_not_called_newer(own_model: Path) -> None:
    _change_config(model_type="brandnew", auto_map=OWN_CODE)(own_model)
    with pytest.raises(TunesmithError, match="needs code of its own") as refusal:
        load_config(own_model)
    assert "Tunesmith never runs" in refusal.value.message
    assert "update" not in refusal.value.hint
    assert "without code of its own" in refusal.value.hint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "dataset-empty"),
        ("{\n", "dataset-parse-error"),
        ('{"other": 1}\n', "dataset-column-missing"),
        (
            '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}\n',
            "no-trained-tokens",
        ),
    ],
)
def test_bad_data(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path, text: str, code: str) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text(text)
    run = new_run(tiny_spec(data={"path": str(data), "format": "messages", "context_length": 16}))
    assert train(run) == 2
    assert result_of(run)["code"] == code
    assert str(data) in events(run, "error")[0].data["message"]


def test_unknown_target_modules_are_named_beside_the_known(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec(method={"target_modules": ["q_proj", "w_proj"]}))
    assert train(run) == 2
    (error,) = events(run, "error")
    assert error.data["code"] == "lora-target-modules-missing"
    assert "no layer named w_proj" in error.data["message"]
    assert "down_proj" in error.data["message"]


def test_gpu_that_is_not_there(tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = new_run(tiny_spec(hardware={"device": "cuda"}))
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    assert train(run) == 3
    assert result_of(run)["code"] == "driver-missing"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert train(run) == 3
    assert result_of(run)["code"] == "torch-cpu-build"


def test_damaged_spec_is_an_error_event_too(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    (run.path / "spec.json").write_text("{")
    assert train(run) == 2
    assert result_of(run)["code"] == "file-unreadable"


def test_our_own_mistake_keeps_its_traceback(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("never thought of that")

    monkeypatch.setattr(assembly_module, "totals_of", fail)
    run = new_run(tiny_spec())
    assert train(run) == 1
    (error,) = events(run, "error")
    assert error.data["code"] == "bug"
    assert "ZeroDivisionError: never thought of that" in error.data["context"]
    assert "Traceback" in capsys.readouterr().err


# Numbers that are none

PLAIN = {"hardware": {"kernels": False}}
"""The way through autograd, whose losses a test can change; test_fused_path.py has the other way."""


def _poisoned(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    """Make the losses of some steps, counted from 1, not a number."""
    real = SupervisedFineTuning.summed_loss
    updates = {"num": 0}
    update = assembly_module.Assembly.update

    def counted(self: object, *arguments: object) -> object:
        updates["num"] += 1
        return update(self, *arguments)  # type: ignore[arg-type]

    def loss(*arguments: object) -> torch.Tensor:
        factor = float("nan") if updates["num"] in steps else 1.0
        return real(*arguments) * factor  # type: ignore[arg-type]

    monkeypatch.setattr(assembly_module.Assembly, "update", counted)
    monkeypatch.setattr(SupervisedFineTuning, "summed_loss", loss)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_single_nan_is_skipped_with_a_warning(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    _poisoned(monkeypatch, {2, 4, 5})
    run = new_run(tiny_spec(optimizer={"name": optimizer}, **PLAIN))
    assert train(run) == 0
    assert [e.data["code"] for e in events(run, "warning")] == ["nan-loss"] * 3
    assert [loss is None for loss in step_losses(run)] == [False, True, False, True, True, False]
    assert events(run, "step")[1].data["nonfinite"] == ["loss", "grad_norm"]


def test_three_nan_steps_fail_and_keep_the_last_good_checkpoint(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    _poisoned(monkeypatch, {3, 4, 5, 6})
    run = new_run(tiny_spec(saving={"every_steps": 1}, **PLAIN))
    assert train(run) == 4
    assert result_of(run)["code"] == "nan-loss"
    assert [e.data["code"] for e in events(run, "warning")] == ["nan-loss"] * 2
    assert len(step_losses(run)) == 5
    assert not run.adapter_path.exists()
    # The skipped steps have not touched the weights, so the newest checkpoint is good.
    monkeypatch.undo()
    os.environ["TUNESMITH_HOME"] = str(run.path.parents[1])
    assert train(run) == 0


@pytest.mark.parametrize("bad_steps", [{0}, {3}])
def test_an_evaluation_loss_that_is_no_number_ends_the_run(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, bad_steps: set[int]
) -> None:
    measure = loop_module.Loop.held_out

    def poisoned(self: object, step: int, with_adapter: bool, should_stop: object) -> object:
        result = measure(self, step, with_adapter, should_stop)  # type: ignore[arg-type]
        assert result is not None
        return replace(result, loss=float("nan")) if (step if with_adapter else 0) in bad_steps else result

    monkeypatch.setattr(loop_module.Loop, "held_out", poisoned)
    run = new_run(tiny_spec(evaluation={"percent": 20.0, "every_steps": 3}))
    assert train(run) == 4
    assert result_of(run)["code"] == "nan-loss"
    (error,) = events(run, "error")
    assert ("base model" in error.data["message"]) == (bad_steps == {0})
    assert error.data["hint"]
    saved = [event.data["step"] for event in events(run, "checkpoint")]
    assert saved == ([1] if bad_steps == {0} else [1, 3]), "the steps so far are kept"


@pytest.mark.parametrize("percent", [0.0, 20.0])
@pytest.mark.parametrize("num_steps", [2, 6])
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("cause", ["rms_norm_eps", "alpha"])
def test_numbers_that_overflow_end_as_such(
    tiny_spec: MakeSpec, new_run: NewRun, own_model: Path, cause: str, kernels: bool, num_steps: int, percent: float
) -> None:
    if cause == "rms_norm_eps":
        _change_config(rms_norm_eps=float("nan"))(own_model)
    method = {"alpha": 1e308} if cause == "alpha" else {}
    run = new_run(
        tiny_spec(
            model={"path": str(own_model)},
            method=method,
            schedule={"max_steps": num_steps},
            evaluation={"percent": percent},
            hardware={"kernels": kernels},
        )
    )
    assert train(run) == 4
    assert result_of(run)["code"] == "nan-loss", events(run, "error")
    if cause == "alpha":
        assert "adapter.alpha" in events(run, "error")[0].data["message"]
    assert not run.adapter_path.exists()


# Memory


@pytest.mark.skipif(sys.platform == "win32", reason="a process has no such limit here")
@pytest.mark.parametrize("limit_mib", [500, 1500])
def test_an_engine_under_a_memory_limit_names_it(tiny_spec: MakeSpec, new_run: NewRun, limit_mib: int) -> None:
    import resource

    run = new_run(tiny_spec(schedule={"max_steps": 1}))
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(run.path))
    limits = (limit_mib << 20, limit_mib << 20)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
    )
    if done.returncode == 0:
        pytest.skip("this much suffices here")
    if events(run, "error"):
        assert result_of(run)["code"] == "memory-full", events(run, "error")[0].data
        assert "ulimit -v" in events(run, "error")[0].data["message"]
    else:
        # It died without a word of its own; the supervisor names the limit then, see test_memory_limits.py.
        assert memory_limits.speaks_of_memory(done.stderr) or done.returncode < 0, done.stderr


def _short_of_memory(monkeypatch: pytest.MonkeyPatch, fits: Callable[[int, bool], bool]) -> list[int]:
    """Let training batches fit by their rows and by activation checkpointing; returns the sizes that were tried."""
    real = SupervisedFineTuning.summed_loss
    tried: list[int] = []

    def loss(self: SupervisedFineTuning, model: object, batch: object, some_positions: bool) -> torch.Tensor:
        rows = batch.input_ids.shape[0]  # type: ignore[attr-defined]
        base = model.get_base_model()  # type: ignore[attr-defined]
        tried.append(rows)
        result = real(self, model, batch, some_positions)  # type: ignore[arg-type]
        if not fits(rows, base.is_gradient_checkpointing):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return result

    monkeypatch.setattr(SupervisedFineTuning, "summed_loss", loss)
    return tried


def test_lack_of_memory_halves_the_micro_batch_and_keeps_the_effective_batch(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = {"micro_batch_size": 8, "gradient_accumulation_steps": 1, "max_steps": 4}
    plain = new_run(tiny_spec(schedule=schedule, **PLAIN))
    assert train(plain) == 0
    tried = _short_of_memory(monkeypatch, lambda rows, _: rows <= 2)
    run = new_run(tiny_spec(schedule=schedule, **PLAIN))
    assert train(run) == 0
    assert tried[:3] == [8, 4, 2]
    assert set(tried[3:]) == {2}
    assert [e.data["code"] for e in events(run, "warning")] == ["cuda-oom"] * 2
    assert "micro-batches of 2" in events(run, "warning")[1].data["message"]
    assert step_losses(run) == pytest.approx(step_losses(plain), rel=1e-4)


def test_last_rungs_are_checkpointing_and_failure(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    _short_of_memory(monkeypatch, lambda rows, checkpointing: rows == 1 and checkpointing)
    run = new_run(tiny_spec(**PLAIN))
    assert train(run) == 0
    assert "activation checkpointing" in events(run, "warning")[1].data["message"]
    _short_of_memory(monkeypatch, lambda *_: False)
    failing = new_run(tiny_spec(**PLAIN))
    assert train(failing) == 4
    assert result_of(failing)["code"] == "cuda-oom"
    assert not events(failing, "step")


def test_retried_step_applies_no_half_step(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second micro-batch of the third step fails once: its first half must not count twice."""
    plain = new_run(tiny_spec(**PLAIN))
    assert train(plain) == 0
    real, calls = SupervisedFineTuning.summed_loss, {"num": 0}

    def loss(*arguments: object) -> torch.Tensor:
        calls["num"] += 1
        if calls["num"] == 6:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SupervisedFineTuning, "summed_loss", loss)
    run = new_run(tiny_spec(**PLAIN))
    assert train(run) == 0
    assert step_losses(run) == pytest.approx(step_losses(plain), rel=1e-4)


def test_resumed_run_stays_on_its_rung(tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = _short_of_memory(monkeypatch, lambda rows, checkpointing: rows == 1 and checkpointing)
    run = new_run(tiny_spec(**PLAIN))
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    before = len(tried)
    assert train(run) == 0
    assert set(tried[before:]) == {1}
    assert len(events(run, "warning")) == 2


# Words of libraries


class GatedRepoError(Exception):
    """Stands for the hub library's class, which is recognised by name."""


class LocalEntryNotFoundError(Exception):
    """Stands for the hub library's class."""


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "cuda-oom", 4),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "cuda-oom", 4),
        (MemoryError(), "memory-full", 4),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "memory-full", 4),
        (OSError("[WinError 1455] The paging file is too small for this operation"), "page-file-too-small", 3),
        (RuntimeError("CUDA error: no kernel image is available for execution"), "no-kernel-image-for-arch", 3),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "illegal-memory-access-packing", 4),
        (RuntimeError("The NVIDIA driver on your system is too old (found version 11040)"), "driver-too-old", 3),
        (AssertionError("Torch not compiled with CUDA enabled"), "torch-cpu-build", 3),
        (RuntimeError("Found no NVIDIA driver on your system."), "driver-missing", 3),
        (RuntimeError("Expected all tensors to be on the same device, but found"), "device-mismatch", 4),
        (ImportError("FlashAttention2 has been toggled on, but it cannot be used"), "flash-attn-missing", 3),
        (ImportError("The installed version of bitsandbytes (<0.43.1) requires CUDA"), "bnb-cuda-lib-missing", 3),
        (ValueError("Target modules {'x'} not found in the base model."), "lora-target-modules-missing", 2),
        (ImportError("requires the SentencePiece library: sentencepiece"), "tokenizer-missing-dep", 3),
        (SafetensorError("Error while deserializing header: incomplete"), "model-files-missing-or-corrupt", 2),
        (GatedRepoError("401 Client Error"), "hub-gated-401", 3),
        (LocalEntryNotFoundError("cannot find the requested files in the disk cache"), "hub-offline", 3),
        (OSError(28, "No space left on device", "/x"), "disk-full", 3),
        (OSError(13, "Permission denied", "/x"), "permission-or-antivirus", 3),
        (TypeError("__init__() got an unexpected keyword argument 'eva_config'"), "trl-peft-api-mismatch", 3),
        (KeyError("nobody knows"), "bug", 1),
        (UserError("dataset-empty", "no rows"), "dataset-empty", 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_library_errors_get_their_code(error: Exception, code: str, exit_code: int) -> None:
    found = translate(error)
    assert (found.code, found.exit_code) == (code, exit_code)
    assert found.hint


def test_what_no_rule_names_goes_through_the_diagnosis() -> None:
    found = translate(RuntimeError("Triton Error [CUDA]: device kernel image is invalid"))
    assert (found.code, found.exit_code) == ("triton-arch-unsupported", 3)
    assert "device kernel image is invalid" in found.message
    assert "Traceback" in str(found.context) or "RuntimeError" in str(found.context)


def test_cause_decides_where_the_outer_error_says_nothing() -> None:
    error = RuntimeError("could not get the model")
    error.__cause__ = LocalEntryNotFoundError("cannot find the requested files")
    assert translate(error).code == "hub-offline"
    error.__cause__.__cause__ = OSError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    assert translate(error).code == "hub-ssl-or-proxy"


def test_hang_is_reported_once_with_every_stack(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from tunesmith_engine import host as host_module

    run = new_run(tiny_spec())
    monkeypatch.setattr(host_module, "HANG_MINIMUM_S", 0.0)
    host = Host(run)
    host.progress()
    host._check_hang()
    host._check_hang()
    assert [e.data["code"] for e in events(run, "warning")] == ["engine-hung"]
    assert "test_hang_is_reported_once" in capfd.readouterr().err
    for _ in range(5):
        host.progress(100.0)
    host._check_hang()
    assert len(events(run, "warning")) == 1


def test_sample_without_memory_is_left_out(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(loop_module, "generate", fail)
    run = new_run(tiny_spec(evaluation={"sample_prompts": ["Hi"], "sample_every_steps": 3}))
    assert train(run) == 0
    assert not events(run, "sample")
    assert [e.data["code"] for e in events(run, "warning")] == ["cuda-oom"] * 3


@pytest.mark.parametrize("text", ["a column is named protobuf", "the layer bitsandbytes_1 has no weights"])
def test_a_word_alone_names_no_cause(text: str) -> None:
    assert translate(ValueError(text)).code == "bug"


def test_a_library_error_gets_the_repair_of_its_cause_and_not_a_general_one() -> None:
    found = translate(RuntimeError("CUDA error: no kernel image is available for execution on the device"))
    assert "12.8" in str(found.hint)
