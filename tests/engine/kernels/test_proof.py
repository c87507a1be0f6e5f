"""The proof before step 0, on the CPU with Triton's interpreter: a kernel with a fault falls back alone, by name."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.kernels.conftest import INTERPRETED
from tests.engine.kernels.model_sizes import MODELS, sizes_of_model
from tunesmith_core import environments
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import KernelsSpec
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import read_journal
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import triton_problem
from tunesmith_engine.proof import prove as proof
from tunesmith_engine.proof.attention_case import BACKEND_CASES
from tunesmith_engine.proof.cases import CASES
from tunesmith_engine.proof.inputs import Inputs, Sizes

pytestmark = pytest.mark.skipif(bool(triton_problem) or INTERPRETED, reason="needs Triton without its interpreter")

CPU = torch.device("cpu")
REPOSITORY = Path(__file__).resolve().parents[3]
SIZES = Sizes(
    dtype="float32",
    hidden=64,
    mlp=96,
    num_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    rotary=16,
    vocabulary=200,
)
"""Without four_bit: on the CPU bitsandbytes takes seconds to load."""

HALF = replace(SIZES, dtype="float16")
KERNELS = {
    *("rms_norm", "rope", "glu", "embedding", "copy_rows", "matvec", "argmax", "cached_attention"),
    *("adapter_gradients", "cross_entropy", "adamw", "adamw_8bit"),
}
HALF_KERNELS = KERNELS | {"attention-triton"}
"""Our attention computes in 16 bits only."""


@pytest.fixture(autouse=True)
def implementation(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[None]:
    """Children compute with Triton's interpreter; nothing is computed in this process."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    registry.switch_on_all()


BreakKernels = Callable[[dict[str, str]], None]


@pytest.fixture
def break_kernels(monkeypatch: pytest.MonkeyPatch) -> BreakKernels:
    """Return a function that lets children run with faults in kernels, by name."""

    def broken(faults: dict[str, str]) -> None:
        words = ",".join(f"{name}={fault}" for name, fault in faults.items())
        script = [sys.executable, str(Path(__file__).with_name("faulty_engine.py")), words]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY / "engine"), str(REPOSITORY)]))
        monkeypatch.setattr(environments, "own_command", lambda _module, *arguments: [*script, *arguments])

    return broken


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which no child may be started."""

    def forbid() -> None:
        monkeypatch.setattr(proof, "conduct", lambda *_, **__: pytest.fail("A child was started."))

    return forbid


def test_every_kernel_is_proven_once(break_kernels: BreakKernels, no_child: Callable[[], None]) -> None:
    break_kernels({})
    results = proof.prove(SIZES, CPU)
    assert results == dict.fromkeys(KERNELS)
    no_child()
    assert proof.prove(SIZES, CPU) == results
    with pytest.raises(pytest.fail.Exception):
        proof.prove(replace(SIZES, hidden=128), CPU)


def check_fallback(results: dict[str, str | None], words: dict[str, str]) -> None:
    """Hold the results to reasons with such words, and everything else to run on."""
    assert results.keys() == HALF_KERNELS
    assert {name for name, reason in results.items() if reason} == words.keys(), results
    proof.apply(results)
    for name in HALF_KERNELS:
        reason = registry.reason_off(name, CPU)
        assert words[name] in reason if name in words else reason is None


def test_kernels_that_compute_wrong_fall_back_alone(break_kernels: BreakKernels) -> None:
    break_kernels({"rope": "zeros", "cross_entropy": "sign", "adamw": "one number", "glu": "nan", "embedding": "raise"})
    words = {
        "rope": "computes query wrong",
        "cross_entropy": "computes loss wrong",
        "adamw": "computes norm wrong",
        "glu": "error nan",
        "embedding": "'.L1' not allowed",
    }
    check_fallback(proof.prove(HALF, CPU), words)


def test_kernels_that_end_or_stop_the_process_fall_back_alone(
    break_kernels: BreakKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_kernels({"rms_norm": "abort", "glu": "hang", "attention-triton": "abort"})
    monkeypatch.setattr(proof, "LIMIT_S", 20.0)
    words = {
        "rms_norm": "crashed with exit code",
        "glu": "hung for 20 s",
        "attention-triton": "crashed with exit code",
    }
    check_fallback(proof.prove(HALF, CPU), words)


def test_what_failed_is_tried_again_and_alone(break_kernels: BreakKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    own_command = environments.own_command
    break_kernels({"embedding": "raise"})
    assert proof.prove(SIZES, CPU)["embedding"]
    asked: list[list[str]] = []

    def watched(kind: Kind, spec: KernelsSpec, **options: Any) -> Outcome:
        asked.append(spec.kernels)
        return conduct(kind, spec, **options)

    monkeypatch.setattr(proof, "conduct", watched)
    monkeypatch.setattr(environments, "own_command", own_command)
    assert proof.prove(SIZES, CPU) == dict.fromkeys(KERNELS)
    assert asked == [["embedding"]]


def test_a_child_that_does_not_start_names_its_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no GPU left')"]
    monkeypatch.setattr(environments, "own_command", lambda *_: command)
    results = proof.prove(SIZES, CPU)
    assert set(results.values()) == {"The process that tests kernels crashed with exit code 1."}
    assert "no GPU left" in capfd.readouterr().err


def test_another_driver_or_source_wants_proof_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = proof._remembered(SIZES, CPU)
    assert proof._remembered(SIZES, CPU) == first
    monkeypatch.setattr(proof, "triton_version", lambda: "3.99")
    second = proof._remembered(SIZES, CPU)
    monkeypatch.setattr(proof, "_source_hash", lambda: "changed")
    assert len({first, second, proof._remembered(SIZES, CPU)}) == 3


@pytest.mark.parametrize("content", ["", "{}", "[", "null"])
def test_a_damaged_record_means_proving_again(content: str) -> None:
    record = proof._remembered(SIZES, CPU)
    record.parent.mkdir(parents=True)
    record.write_text(content)
    assert proof._passed(record) == []


def test_a_gpu_that_no_longer_answers_ends_the_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After an illegal access every later kernel of that process would fail as well."""
    monkeypatch.setattr(proof, "_reason", lambda *_: "It failed on this machine: illegal memory access")
    monkeypatch.setattr(proof, "_is_alive", lambda _: False)
    operation = Operation(tmp_path)
    with Host(operation) as host:
        proof.prove_here(host, KernelsSpec(asdict(SIZES), "cpu", ["rope", "glu"]))
    assert [event.data["kernel"] for event in read_journal(operation.journal_path)] == ["rope", "rope"]


def test_a_run_that_computes_on_the_cpu_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    assert proof.prove(SIZES, CPU) == {}


def test_a_model_whose_attention_runs_as_written_proves_none() -> None:
    sizes = replace(sizes_of_model("llama-3.1-8b", "float32"), num_heads=0, num_key_value_heads=0, head_dim=0)
    assert not any(case.runs(sizes, torch.device("cpu")) for case in BACKEND_CASES)


def test_a_kernel_may_round_its_largest_value_the_other_way() -> None:
    exact = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 100
    exact[7] = 16.0
    twin, beside, wrong = (exact.to(torch.bfloat16).double() for _ in range(3))
    step = 16.0 * torch.finfo(torch.bfloat16).eps
    beside[7] += step
    assert proof._excess(beside, twin, exact, torch.bfloat16) is None
    wrong[8] += step
    assert "largest error" in (proof._excess(wrong, twin, exact, torch.bfloat16) or "")
    # A twin that errs there lets a kernel err anywhere, as it does without such a value.
    twin[7] += step
    assert proof._excess(wrong, twin, exact, torch.bfloat16) is None
    wrong[8] = torch.nan
    assert proof._excess(wrong, twin, exact, torch.bfloat16)


@pytest.mark.parametrize("name", CASES)
def test_a_proof_needs_little_memory_and_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [sizes_of_model(model, "bfloat16") for model in MODELS]
    sizes = next((sizes for sizes in models if CASES[name].wanted(sizes)), models[0])
    asked: list[int] = []
    random = Inputs.random

    def counted(inputs: Inputs, *shape: int) -> torch.Tensor:
        asked.append(math.prod(shape))
        return random(inputs, *shape)

    monkeypatch.setattr(Inputs, "random", counted)
    for each in CASES:
        registry.switch_off(each, "Nothing is computed by a kernel here.")
    CASES[name].compute(sizes, Inputs(sizes, CPU, torch.float32), twin=True)
    # In float64, 64 MB: a matrix of the vocabulary would be 4 GB, and take ten seconds to make.
    assert sum(asked) < 8_000_000
