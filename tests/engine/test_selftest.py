"""The proof of an environment: steps with causes, judged numbers, a result that is there at any time."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tunesmith_core import files
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import serve
from tunesmith_core.operations.kinds.engine import SELFTEST, SelftestSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.protocol import read_journal
from tunesmith_engine import selftest
from tunesmith_engine.proof.inputs import Sizes
from tunesmith_engine.selftest import (
    STEPS,
    NotApplicableError,
    Step,
    four_bit,
    gpu,
    lora_step,
    matrix_product,
    numerics,
    triton_kernel,
)
from tunesmith_engine.train.optim import Updater

FakeSteps = Callable[..., None]


def test_every_step_is_proved_on_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))

    def here(operation: Operation) -> list[str]:
        return SELFTEST.command(operation, SelftestSpec("cpu"), Path(sys.executable))

    result = conduct(SELFTEST, SelftestSpec("cpu"), command=here).get()
    states = {step["name"]: step["state"] for step in result["steps"]}
    assert states == {step.name: "ok" for step in STEPS} | {"gpu": "skipped"}
    assert (result["state"], result["device"], result["fused_kernels"]) == ("ok", "cpu", False)
    details = {step["name"]: step["details"] for step in result["steps"]}
    assert details["imports"]["versions"]["torch"] == torch.__version__.split("+")[0]
    assert details["triton_kernel"]["interpreted"] is True
    assert details["lora_step"]["cpu float32"]["losses"][-1] < details["lora_step"]["cpu float32"]["losses"][0]
    assert all(step["seconds"] >= 0 for step in result["steps"])


@pytest.fixture
def fake_steps(monkeypatch: pytest.MonkeyPatch) -> FakeSteps:
    """Replace the steps by functions; the second of the three is not required."""
    monkeypatch.setenv("TRITON_INTERPRET", "")

    def replace(*proofs: Callable[[str], Any]) -> None:
        steps = []
        for number, proof in enumerate(proofs):
            name = f"step_{number}"
            module = types.ModuleType(name)
            module.prove = proof  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, f"tunesmith_engine.selftest.{name}", module)
            steps.append(Step(name, f"Step {number}", "engine-crashed", required=number != 1))
        monkeypatch.setattr(selftest, "STEPS", tuple(steps))

    return replace


def fail(error: Exception) -> Callable[[str], Any]:
    """Return a step that raises."""

    def prove(_: str) -> Any:
        raise error

    return prove


def test_the_journal_tells_at_any_time_which_step_goes_on(fake_steps: FakeSteps) -> None:
    told: list[tuple[str, str]] = []
    seen: list[tuple[str, str]] = []

    def look(device: str) -> dict[str, Any]:
        seen.append(told[-1])
        return {"device": device}

    fake_steps(look, look, look)
    result = selftest.selftest("cpu", lambda step: told.append((step["name"], step["state"])))
    assert seen == [("step_0", "checking"), ("step_1", "checking"), ("step_2", "checking")]
    assert told[1::2] == [("step_0", "ok"), ("step_1", "ok"), ("step_2", "ok")]
    assert result["steps"][0]["details"] == {"device": "cpu"}


def test_a_step_that_is_not_required_may_fail(fake_steps: FakeSteps) -> None:
    fake_steps(lambda _: {}, fail(ValueError("something of Triton")), lambda _: {})
    result = selftest.selftest("cpu")
    assert [step["state"] for step in result["steps"]] == ["ok", "failed", "ok"]
    assert result["state"] == "ok"
    assert "error" not in result
    assert result["steps"][1]["error"]["code"] == "engine-crashed"
    assert "something of Triton" in result["steps"][1]["error"]["message"]


def test_a_required_step_that_fails_ends_the_proof(fake_steps: FakeSteps, tmp_path: Path) -> None:
    fake_steps(fail(EnvironmentProblem("driver-missing", "No driver.")), lambda _: {}, lambda _: {})
    operation = Operation(tmp_path)
    files.atomic_write_json(operation.path / "operation.json", {"kind": "selftest"})
    files.atomic_write_json(operation.spec_path, {"device": "cpu"})
    assert serve(operation) == 3
    *_, error, end = read_journal(operation.journal_path)
    result = end.data["answer"]
    assert (error.data["code"], end.data["status"]) == ("driver-missing", "failed")
    assert result["state"] == "failed"
    assert result["error"]["code"] == "driver-missing"
    assert [step["state"] for step in result["steps"]] == ["failed", "waiting", "waiting"]


def test_what_does_not_apply_is_skipped_with_its_reason(fake_steps: FakeSteps) -> None:
    fake_steps(lambda _: {}, fail(NotApplicableError("too old")), lambda _: {})
    result = selftest.selftest("cpu")
    assert result["steps"][1]["state"] == "skipped"
    assert result["steps"][1]["details"] == {"reason": "too old"}
    assert result["state"] == "ok"


def test_the_device_follows_the_driver(fake_steps: FakeSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_steps(lambda device: {"device": device})
    monkeypatch.setattr(selftest, "nvidia_present", lambda: True)
    assert selftest.selftest()["device"] == "cuda"
    monkeypatch.setattr(selftest, "nvidia_present", lambda: False)
    assert selftest.selftest()["device"] == "cpu"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            RuntimeError("CUDA error: no kernel image is available for execution on the device"),
            "no-kernel-image-for-arch",
        ),
        (
            RuntimeError(
                "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"
            ),
            "driver-too-old",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "cuda-oom"),
        (ModuleNotFoundError("No module named 'triton'"), "triton-not-installed"),
        (
            ImportError("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.4.6 as it may crash."),
            "numpy-abi-mismatch",
        ),
        (
            OSError('[WinError 126] Error loading "C:\\env\\torch\\lib\\c10.dll" or one of its dependencies.'),
            "dll-load-failed-vcredist",
        ),
        (EnvironmentProblem("torch-cpu-build", "no CUDA"), "torch-cpu-build"),
        (ValueError("nobody foresaw this"), "engine-crashed"),
    ],
)
def test_the_cause_is_read_from_the_words(error: Exception, code: str) -> None:
    found = selftest.cause(Step("some", "Some step", "engine-crashed"), error)
    assert found.code == code


class TestNumbers:
    """What counts as right."""

    oracle = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    reference = torch.tensor([1.0, 2.0, 3.0])

    def test_rounding_is_allowed(self) -> None:
        values = self.reference * (1 + 1.2e-7)
        found = numerics.judge("A sum", values, self.reference, self.oracle, torch.float32)
        assert found["error"] <= found["allowed"] == 2 * torch.finfo(torch.float32).eps

    @pytest.mark.parametrize("wrong", [1.00001, float("nan"), float("inf")])
    def test_more_is_not(self, wrong: float) -> None:
        with pytest.raises(EnvironmentProblem, match="A sum on cpu: the relative error is") as caught:
            numerics.judge("A sum", self.reference * wrong, self.reference, self.oracle, torch.float32)
        assert caught.value.code == "device-miscomputes"

    def test_a_coarse_format_may_err_as_the_processor_does(self) -> None:
        reference = self.reference * 1.01
        numerics.judge("A sum", self.reference * 1.05, reference, self.oracle, torch.bfloat16)

    def test_a_gpu_is_proved_in_both_its_formats(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        places = numerics.devices("cuda")
        assert [str(place) for place in places] == ["cuda:0", "cuda:1"]
        for capability, half in (((8, 0), torch.bfloat16), ((7, 5), torch.float16)):
            monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
            assert numerics.formats(places[0]) == [torch.float32, half]


class TestReachingTheGpus:
    """Each cause has its code."""

    @pytest.fixture(autouse=True)
    def working(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A computer with one GPU, as far as this step asks."""
        monkeypatch.setattr(torch.version, "cuda", "12.4")
        monkeypatch.setattr(gpu, "nvidia_present", lambda: True)
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_86"])
        self.answer(monkeypatch, 8, 6)

    def answer(self, monkeypatch: pytest.MonkeyPatch, major: int, minor: int) -> None:
        card = types.SimpleNamespace(major=major, minor=minor, name="RTX 3060", total_memory=12 << 30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)

    def test_the_gpus_are_named(self) -> None:
        assert gpu.prove("cuda") == {
            "cuda": "12.4",
            "architectures": ["sm_86"],
            "gpus": [{"index": 0, "name": "RTX 3060", "capability": "8.6", "total_bytes": 12 << 30}],
        }

    def test_a_build_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", None)
        with pytest.raises(EnvironmentProblem) as caught:
            gpu.prove("cuda")
        assert caught.value.code == "torch-cpu-build"

    def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu, "nvidia_present", lambda: False)
        with pytest.raises(EnvironmentProblem) as caught:
            gpu.prove("cuda")
        assert caught.value.code == "driver-missing"

    def test_a_gpu_that_is_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer(monkeypatch, 5, 2)
        with pytest.raises(EnvironmentProblem, match=r"compute capability 5\.2") as caught:
            gpu.prove("cuda")
        assert caught.value.code == "no-kernel-image-for-arch"

    def test_the_processor_needs_none(self) -> None:
        with pytest.raises(NotApplicableError):
            gpu.prove("cpu")


class TestTriton:
    """Where the kernel does not apply."""

    def test_an_old_gpu_uses_pytorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))
        with pytest.raises(NotApplicableError, match="PyTorch's own kernels"):
            triton_kernel.prove("cuda")

    def test_without_gpu_and_triton_there_is_nothing_to_prove(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(triton_kernel.importlib.util, "find_spec", lambda _: None)
        with pytest.raises(NotApplicableError, match="not needed"):
            triton_kernel.prove("cpu")

    def test_kernels_of_runs_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def prove(sizes: Sizes, place: torch.device) -> dict[str, str | None]:
            asked.append((sizes.dtype, sizes.four_bit, place.type))
            return {"rope": None, "glu": "It computes out wrong on this machine."}

        monkeypatch.setattr(triton_kernel.proof, "prove", prove)
        found = triton_kernel.kernels_of_runs(torch.device("cpu"))
        assert found == {"rope": "ok", "glu": "It computes out wrong on this machine."}
        assert asked == [("float32", True, "cpu")]


def test_a_product_is_judged_in_every_format_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_product, "formats", lambda _: [torch.float32, torch.bfloat16])
    found = matrix_product.prove("cpu")
    assert list(found) == ["cpu float32", "cpu bfloat16"]
    assert found["cpu float32"]["error"] < 1e-6 < found["cpu bfloat16"]["error"]


def test_wrong_four_bit_results_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from bitsandbytes.nn import Linear4bit

    forward = Linear4bit.forward
    monkeypatch.setattr(Linear4bit, "forward", lambda self, inputs: forward(self, inputs) * 1.001)
    with pytest.raises(EnvironmentProblem, match="A 4-bit layer") as caught:
        four_bit.prove("cpu")
    assert caught.value.code == "device-miscomputes"


def test_a_model_that_does_not_learn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    update = Updater.update
    monkeypatch.setattr(Updater, "update", lambda self, _: update(self, 0.0))
    with pytest.raises(EnvironmentProblem, match="does not learn on cpu") as caught:
        lora_step.prove("cpu")
    assert caught.value.code == "device-miscomputes"


def test_wrong_gradients_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    train = lora_step.train
    calls: list[torch.dtype] = []

    def disturbed(place: torch.device, dtype: torch.dtype) -> lora_step.Trained:
        calls.append(dtype)
        trained = train(place, dtype)
        # The third call is the device's: oracle, reference, device.
        return trained if len(calls) < 3 else lora_step.Trained(trained.losses, trained.gradient * 1.001)

    monkeypatch.setattr(lora_step, "train", disturbed)
    with pytest.raises(EnvironmentProblem, match="A gradient on cpu"):
        lora_step.prove("cpu")


def test_the_result_is_json(fake_steps: FakeSteps) -> None:
    fake_steps(lambda _: {"number": 1.5})
    assert json.loads(json.dumps(selftest.selftest("cpu")))["version"] == selftest.VERSION
