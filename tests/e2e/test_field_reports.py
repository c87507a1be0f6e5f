"""The five field reports that Tunesmith answers: each provoked, or its output replayed, up to the answer a person gets.

The fourth, a machine with every ordinary fault at once, is in tests/setup/test_checks_command.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.real_runs import training_environment
from tunesmith_core.environments import engine_environment, environment_python, own_command, scrubbed_environment
from tunesmith_core.machine import Driver, Gpu, Machine

FAULTS = Path(__file__).with_name("triton_faults.py")
OLD_PTXAS = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 11.2, V11.2.152"; exit 0 ;; esac
echo "ptxas $0.ptx, line 21; error   : Modifier '.L1' not allowed for instruction 'ld'" >&2
echo "ptxas fatal   : Ptx assembly aborted due to errors" >&2
exit 255
"""


def compile_kernel(
    tmp_path: Path, kernel: str, capability: int, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Compile a kernel in the training environment with variables of the person's shell."""
    command = [str(environment_python(training_environment())), "-X", "utf8", str(FAULTS), kernel, str(capability)]
    environment = scrubbed_environment() | {"TRITON_CACHE_DIR": str(tmp_path / "tc")} | variables
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def answer(log: bytes, tmp_path: Path, machine: Machine | None = None) -> tuple[dict[str, Any], str]:
    """Return what `explain` says about a log: for programs, and in words for the person."""
    facts = tmp_path / "facts.json"
    if machine:
        facts.write_text(json.dumps(machine.to_dict()), encoding="utf-8")
    options = ["--facts", str(facts)] if machine else []
    command = own_command("tunesmith_setup", "explain", "-", *options)
    told = [
        subprocess.run([*command, *form], input=log, stdout=subprocess.PIPE, check=True).stdout.decode("utf-8")
        for form in (["--json"], [])
    ]
    return json.loads(told[0]), told[1]


@pytest.fixture
def shell(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shell of somebody with an old CUDA toolkit: its ptxas is asked for by a variable."""
    ptxas = tmp_path / "toolkit" / "bin" / "ptxas"
    ptxas.parent.mkdir(parents=True)
    ptxas.write_text(OLD_PTXAS)
    ptxas.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(ptxas))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "toolkit"))
    return ptxas


def test_report_1_a_foreign_ptxas_is_named_and_never_reaches_our_engine(shell: Path, tmp_path: Path) -> None:
    failed = compile_kernel(tmp_path, "add_one", 86, TRITON_PTXAS_PATH=str(shell))
    assert failed.returncode != 0
    assert b"'.L1' not allowed" in failed.stdout
    found, words = answer(failed.stdout, tmp_path)
    assert found["code"] == "ptxas-mismatch"
    assert "TRITON_PTXAS_PATH" in words
    assert "clear-compile-caches" in found["actions"]
    # What our own engine sees: the variables are gone, and the same kernel compiles with the ptxas of its own Triton.
    inside = engine_environment()
    assert not {"TRITON_PTXAS_PATH", "CUDA_PATH"} & set(inside)
    kept = {name: value for name, value in inside.items() if name != "TRITON_CACHE_DIR"}
    assert compile_kernel(tmp_path, "add_one", 86, **kept).returncode == 0


def test_report_1_the_message_of_the_windows_thread(tmp_path: Path) -> None:
    log = (
        "  5%|5         | 10/200 [00:41<12:07,  3.83s/it]\n"
        "triton.runtime.errors.PTXASError: PTXAS error: `ptxas` failed with error code 4294967295\n"
        "ptxas C:\\Users\\me\\AppData\\Local\\Temp\\tmpq1.ptx, line 62; error : Modifier '.L1' not allowed\n"
    )
    card = Gpu(index=0, name="NVIDIA GeForce RTX 3060", compute_capability=(8, 6))
    machine = Machine(
        system="windows", gpus=(card,), driver=Driver(version="552.44"), leaks={"CUDA_PATH": r"C:\CUDA\v11.2"}
    )
    found, _ = answer(log.encode(), tmp_path, machine)
    assert found["code"] == "ptxas-mismatch"
    assert "4294967295" in found["evidence"] or ".L1" in found["evidence"]


def test_report_2_a_launcher_that_does_not_link_leads_to_plain_pytorch_and_to_wsl(tmp_path: Path) -> None:
    log = (
        "main.c\r\n"
        "   Creating library main.cp311-win_amd64.lib and object main.cp311-win_amd64.exp\r\n"
        "main.obj : error LNK2001: unresolved external symbol __imp_PyArg_ParseTuple\r\n"
        "LINK : fatal error LNK1181: cannot open input file 'aio.lib'\r\n"
        "subprocess.CalledProcessError: Command '['cl.exe', 'main.c']' returned non-zero exit status 2.\r\n"
    )
    found, words = answer(log.encode("utf-16"), tmp_path)
    assert found["code"] == "triton-link-missing-python-libs"
    assert {"use-pytorch-kernels", "use-wsl"} <= set(found["actions"])
    assert "PyArg_ParseTuple" in words or "aio.lib" in words


def test_report_3_mixed_formats_in_a_kernel(home: Path, tmp_path: Path) -> None:
    failed = compile_kernel(tmp_path, "softcap", 86)
    assert failed.returncode != 0
    found, words = answer(failed.stdout, tmp_path)
    assert found["code"] == "triton-dtype-mismatch"
    assert "use-pytorch-kernels" in found["actions"]
    assert "fp16" in words
    assert "fp32" in words


def test_report_5_an_illegal_memory_access_with_packing(tmp_path: Path) -> None:
    log = (
        '  File "attention.py", line 88, in forward\n    cu_seqlens, max_length = prepare(position_ids)\n'
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    )
    found, words = answer(log.encode(), tmp_path)
    assert found["code"] == "illegal-memory-access-packing"
    assert "packing" in words.lower()
    assert "retry" in found["actions"] or "use-pytorch-kernels" in found["actions"]


def test_a_bare_python_answers(tmp_path: Path) -> None:
    """The diagnosis works when nothing of ours is installed."""
    roots = [
        str(Path(sys.modules["tunesmith_core"].__path__[0]).parents[1] / name) for name in ("installers", "assets")
    ]
    roots.append(str(Path(sys.modules["tunesmith_core"].__path__[0]).parent))
    result = subprocess.run(
        [sys.executable, "-S", "-m", "tunesmith_setup", "explain", "-", "--json"],
        input=b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        check=True,
    )
    assert json.loads(result.stdout)["code"] == "cuda-oom"
