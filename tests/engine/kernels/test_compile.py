"""Every kernel compiles for every architecture that a launcher may choose, with the oldest and a newer Triton.

No GPU is needed: see compile_kernels.py. One child serves an architecture and a Triton; it is started again behind a
case that ended it. The normal run compiles one model in the number format that the architecture trains in for the
oldest architecture and the oldest Triton, another for the newest of both; `long` adds all other combinations.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.kernels.conftest import INTERPRETED
from tests.engine.kernels.model_sizes import MODELS, sizes_of_model
from tunesmith_core.hardware import DOT_CAPABILITY
from tunesmith_engine.kernels.triton_import import triton_problem
from tunesmith_engine.proof.cases import CASES
from tunesmith_engine.proof.inputs import Sizes


@pytest.fixture(autouse=True)
def implementation() -> None:
    """Nothing is computed in this process, by neither implementation."""


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or INTERPRETED or bool(triton_problem), reason="children run Triton's compiler, on Linux"
)

REPOSITORY = Path(__file__).resolve().parents[3]
LOCKS = REPOSITORY / "installers" / "locks"
TRITONS = {
    # The lock that names it, and the architectures that its profile serves.
    "3.2.0": ("cu124", (75, 80, 86, 89, 90)),
    "3.6.0": ("cu128", (80, 86, 89, 90, 100, 120)),
}
PAIRS = [(version, capability) for version, (_, capabilities) in TRITONS.items() for capability in capabilities]
ENDS = [(*PAIRS[0], ("gemma-2-2b",)), (*PAIRS[-1], ("llama-3.1-8b", "qwen3.5-4b"))]
TIMEOUT_S = 500

SHARED_BYTES = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""Kibibytes of shared memory that a program may have (CUDA C++ Programming Guide, table of technical specifications):
Triton finds out only at the launch."""

ATTENTION, WIDE = "attention-triton", "attention-wide"
MAX_REGISTERS = {
    **dict.fromkeys((ATTENTION, WIDE, "delta_rule", "channel_delta", "state_space"), 255),
    **dict.fromkeys(("grouped_product", "nf4_rows"), 255),
    **dict.fromkeys(("nf4_matvec", "cached_attention", "dropout"), 168),
    "short_convolution": 136,
}
"""Of a thread; `ELEMENT_WISE_REGISTERS` where not named. Above 128 fewer than 512 threads fit on a multiprocessor."""
ELEMENT_WISE_REGISTERS = 128
MAX_SPILLED_BYTES = {
    ATTENTION: 148,
    "cross_entropy": 24,
    "delta_rule": 752,
    "channel_delta": 1056,
    "state_space": 1096,
    **dict.fromkeys(("gated_norm", "rope", "gated_convolution", "grouped_product"), 16),
    **dict.fromkeys(("short_convolution", "cached_attention"), 12),
}
"""Of a thread, loads and stores; none where not named: a spill makes a pass over memory several. Cross entropy
with Gemma 4's vocabulary spills three registers with Triton 3.6 on sm_86: the assembler takes 64 of the 128 that it may
so that two programs fit, and one on sm_100. Of the others with a few bytes, each spills one to four registers on one or
two of the architectures: the gated norm and short convolutions with Triton 3.2 on sm_75 to sm_90; heads of 256 of which
a part turns, and products and cached attention in float32, with 3.6 on sm_100 and sm_120. The scan's gradients of
b and c spill on sm_80, sm_86 and sm_120, hardly on sm_90. For the delta
rules' launches see `delta_launches`: the delta rule spills 752 bytes in what prepares gradients with 3.2 on sm_80, at
most 48 with 3.6 on consumer GPUs; on servers 624 in the gradients of states with 3.2. The channel-wise rule spills up
to 792 in two programs on sm_80, 640 with 3.6 on consumer GPUs, 1056 in the gradients of states with 3.2 on sm_90."""
NUM_REGISTERS_OF_MULTIPROCESSOR = 65536


@pytest.fixture(scope="session")
def triton_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:  # Any: a function
    """Return a function that installs a Triton from its lock, beside the environments, and returns the folder."""
    installed: dict[str, Path] = {}

    def folder(version: str) -> Path:
        if version not in installed:
            installed[version] = _install(version, tmp_path_factory.mktemp(f"triton-{version}"))
        return installed[version]

    return folder


def _install(version: str, folder: Path) -> Path:
    lock = LOCKS / f"{TRITONS[version][0]}-linux-py3{sys.version_info.minor}.txt"
    pin = re.search(rf"^triton=={re.escape(version)} (?:.*\\\n)+.*\n", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert pin, f"{lock.name} does not name Triton {version}"
    (folder / "pin.txt").write_text(pin[0], encoding="utf-8")
    uv = shutil.which("uv")
    assert uv, "run the tests with: python3 installers/bootstrap.py test"
    options = ["--no-deps", "--require-hashes", "--python", sys.executable, "--target", str(folder / "packages")]
    done = subprocess.run(
        [uv, "pip", "install", *options, "-r", str(folder / "pin.txt")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "packages"


def usual_format(capability: int) -> str:
    """Return the number format that runs choose on an architecture."""
    return "bfloat16" if capability >= 80 else "float16"


def cases_of(models: tuple[str, ...], dtype: str) -> list[str]:
    """Return the cases that models use, named for compile_kernels.py."""
    return [
        f"{model}:{dtype}:{name}"
        for model in models
        for name, case in CASES.items()
        if case.wanted(sizes := sizes_of_model(model, dtype)) and not _is_not_ours(name, sizes)
    ]


def _is_not_ours(name: str, sizes: Sizes) -> bool:
    """Return whether a backend of attention is PyTorch's, or has nothing to do in a model."""
    if name == WIDE:
        return not sizes.wide_heads
    return name.startswith("attention-") and name != ATTENTION


def compiled(packages: Path, capability: int, cases: list[str], tmp_path: Path) -> list[dict[str, Any]]:
    """Compile cases, each for itself where one ends the compiler; return the journal."""
    journal = tmp_path / "journal"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {
        "PYTHONPATH": os.pathsep.join([str(packages), *(str(REPOSITORY / part) for part in ("engine", "."))]),
        "TRITON_CACHE_DIR": str(tmp_path / "compiled"),
        "OMP_NUM_THREADS": "1",
    }
    lines: list[dict[str, Any]] = []
    left = cases
    while left:
        command = [sys.executable, "-m", "tests.engine.kernels.compile_kernels", str(capability), str(journal), *left]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        begun = [line["case"] for line in lines if len(line) == 1]
        assert len(begun) > len(cases) - len(left), done.stderr
        left = cases[len(begun) :]
        if done.returncode:
            # One journal for all children: the culprit is the last case that was begun.
            with journal.open("a") as more:
                error = f"ended the compiler with {done.returncode}: {done.stderr[-1000:]}"
                more.write(json.dumps({"case": begun[-1], "error": error}) + "\n")
    return [json.loads(line) for line in journal.read_text().splitlines()]


def faults(lines: list[dict[str, Any]], capability: int) -> list[str]:
    """Return what is wrong with programs: errors, and budgets that are exceeded."""
    found = [f"{line['case']}: {line['error']}" for line in lines if "error" in line]
    for line in lines:
        if "kernel" not in line:
            continue
        name = kernel_of(line)
        limits = {
            "spilled_bytes": MAX_SPILLED_BYTES.get(name, 0),
            "num_registers": min(
                MAX_REGISTERS.get(name, ELEMENT_WISE_REGISTERS), NUM_REGISTERS_OF_MULTIPROCESSOR // line["num_threads"]
            ),
            "shared_bytes": SHARED_BYTES[capability] * 1024,
            "uses_dot": divmod(capability, 10) >= DOT_CAPABILITY,
            "uses_bf16": capability >= 80,
        }
        found += [
            f"{line['case']}, {line['kernel']}: {what} {line[what]}, allowed {limit}"
            for what, limit in limits.items()
            if line[what] > limit
        ]
    return found


def check(packages: Path, capability: int, cases: list[str], tmp_path: Path) -> set[str]:
    """Compile cases and hold every program to its budget; return the names of those that launchers don't choose."""
    lines = compiled(packages, capability, cases, tmp_path)
    wrong = faults(lines, capability)
    assert not wrong, "\n".join(wrong)
    # Programs that two models share are compiled once.
    programs = {kernel_of(line) for line in lines if "kernel" in line}
    declined = {kernel_of(line) for line in lines if "declined" in line}
    assert programs == {case.rpartition(":")[2] for case in cases} - declined
    return declined


def kernel_of(line: dict[str, Any]) -> str:
    """Return the name of the kernel that a line of the journal is about."""
    return str(line["case"]).rpartition(":")[2]


@pytest.mark.parametrize(("version", "capability", "models"), ENDS, ids=str)
def test_kernels_compile(
    triton_folder: Any, tmp_path: Path, version: str, capability: int, models: tuple[str, ...]
) -> None:
    # Each kernel once, for the first of the models that has it.
    cases = {case.rpartition(":")[2]: case for case in reversed(cases_of(models, usual_format(capability)))}
    declined = check(triton_folder(version), capability, list(cases.values()), tmp_path)
    assert declined == (set() if divmod(capability, 10) >= DOT_CAPABILITY else {ATTENTION, "nf4_rows"})


@pytest.mark.parametrize(
    ("version", "capability"),
    [pytest.param(*pair, marks=() if pair in (PAIRS[0], PAIRS[-1]) else pytest.mark.long) for pair in PAIRS],
    ids=str,
)
def test_heads_of_latent_attention_norms_of_values_and_wide_heads_compile(
    triton_folder: Any, tmp_path: Path, version: str, capability: int
) -> None:
    dtype = usual_format(capability)
    cases = [f"deepseek-v2-lite:{dtype}:latent_heads", f"gemma-4-e4b:{dtype}:rope"]
    cases += [f"gemma-4-e4b:{dtype}:{WIDE}", f"gemma-4-e4b:{dtype}:cached_attention"]
    declined = set() if divmod(capability, 10) >= DOT_CAPABILITY else {WIDE}
    assert check(triton_folder(version), capability, cases, tmp_path) == declined


@pytest.mark.long
@pytest.mark.parametrize(("version", "capability"), PAIRS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_model_compiles(triton_folder: Any, tmp_path: Path, version: str, capability: int, dtype: str) -> None:
    if dtype == "bfloat16" and capability < 80:
        pytest.skip("No run chooses bfloat16 there.")
    declined = check(triton_folder(version), capability, cases_of(tuple(MODELS), dtype), tmp_path)
    before_dots = set() if divmod(capability, 10) >= DOT_CAPABILITY else {"nf4_rows", "dropout"}
    assert declined <= {ATTENTION, WIDE, "delta_rule", "channel_delta", "state_space", "grouped_product"} | before_dots


def test_a_case_that_ends_the_compiler_is_named_and_the_next_is_compiled(triton_folder: Any, tmp_path: Path) -> None:
    cases = ["llama-3.1-8b:float16:abort", "llama-3.1-8b:float16:cross_entropy"]
    lines = compiled(triton_folder("3.2.0"), 75, cases, tmp_path)
    assert [line["case"] for line in lines if "error" in line] == cases[:1]
    assert any(line["case"] == cases[1] and "kernel" in line for line in lines)


def test_bfloat16_on_turing_is_refused(triton_folder: Any, tmp_path: Path) -> None:
    """The compiler is asked at all: it can't compile what runs never choose."""
    lines = compiled(triton_folder("3.2.0"), 75, ["llama-3.1-8b:bfloat16:cross_entropy"], tmp_path)
    assert "sm_80" in faults(lines, 75)[0]


@pytest.mark.parametrize("version", ["3.2.0", "3.6.0"])
def test_a_soft_cap_of_float32_logits_is_rounded_each_time(triton_folder: Any, tmp_path: Path, version: str) -> None:
    """The largest logit is subtracted from itself exactly only if both are rounded: an H200 erred by four steps."""
    cases = [f"gemma-2-2b:{dtype}:cross_entropy" for dtype in ("float32", "bfloat16")]
    lines = compiled(triton_folder(version), 90, cases, tmp_path)
    fuses = {line["case"]: line["fuses_products"] for line in lines if "kernel" in line}
    assert fuses == dict(zip(cases, (False, True), strict=True))


def test_every_budget_is_held() -> None:
    line = {
        "case": "llama-3.1-8b:float16:glu",
        "kernel": "_gate",
        "num_registers": 64,
        "num_threads": 128,
        "spilled_bytes": 0,
        "shared_bytes": 0,
        "uses_dot": False,
        "uses_bf16": False,
    }
    assert faults([line], 75) == []
    excess = {"num_registers": 129, "spilled_bytes": 4, "shared_bytes": 65537, "uses_dot": True, "uses_bf16": True}
    for what, value in excess.items():
        (told,) = faults([line | {what: value}], 75)
        assert f"{what} {value}" in told
    assert faults([line | {"num_threads": 1024, "num_registers": 65}], 90)
    assert faults([line | {"uses_dot": True, "uses_bf16": True}], 80) == []
