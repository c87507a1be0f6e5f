"""The checks of environments read files only, name what is wrong, and mend it; GPU facts are recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.setup import breaking
from tests.setup.conftest import RecordedProgress, script
from tunesmith_core import files, paths, runs
from tunesmith_core.environments import LAUNCHER_POINTER, MANIFEST, PROOF, TRAINING_POINTER
from tunesmith_core.locks import FileLock
from tunesmith_core.machine import Driver, Gpu, GpuProcess, Machine
from tunesmith_core.runs import Run, RunState, RunStatus
from tunesmith_core.setup_messages import Finding
from tunesmith_setup.checks import environment, gpu, leftovers, packages
from tunesmith_setup.checks.base import Check
from tunesmith_setup.checks.environment import EnvironmentFiles, EnvironmentPython
from tunesmith_setup.environments import file_repair, proof, repair
from tunesmith_setup.installation import install, program
from tunesmith_setup.packages import inventory, scratch
from tunesmith_setup.progress import GIB

LINUX = Machine(system="linux", gpus=())
RTX = Gpu(index=0, name="NVIDIA GeForce RTX 3060", compute_capability=(8, 6), total_bytes=12 * GIB, free_bytes=11 * GIB)
WITH_GPU = Machine(system="linux", gpus=(RTX,), driver=Driver(version="550.54", cuda_version=(12, 4)))
TORCH = {"torch": "2.6.0", "triton": "3.2.0", "bitsandbytes": "0.50.2", "numpy": "2.5.5"}
CU124 = "__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n"


def make(
    name: str, versions: dict[str, str], version_file: str | None = CU124, pointer: str = TRAINING_POINTER
) -> Path:
    """Make a sealed folder that looks like an environment; its Python is the one that runs the tests."""
    folder = paths.envs_dir() / name
    site = folder / "lib" / "python3.11" / "site-packages"
    for package, version in versions.items():
        info = site / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "RECORD").write_text(f"{info.name}/RECORD,,\n")
    if version_file is not None:
        (site / "torch").mkdir(parents=True)
        (site / "torch" / "version.py").write_text(version_file)
    (site / "bitsandbytes").mkdir(parents=True)
    (site / "bitsandbytes" / "libbitsandbytes_cuda124.so").write_text("")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    locks = {lock.name: files.sha256_file(lock) for lock in scratch.LOCKS.glob("*.txt")}
    inventory.seal(folder, {"name": name, "locks": locks, "built_at": time.time()})
    (paths.envs_dir() / pointer).write_text(f"{name}\n")
    return folder


@pytest.fixture(autouse=True)
def locks(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program's locks: one, that pins what `TORCH` holds."""
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "tiny.txt").write_text(
        "".join(f"{name}=={version} \\\n    --hash=x\n" for name, version in TORCH.items())
    )
    monkeypatch.setattr(scratch, "LOCKS", folder)
    return folder


def look(check: Check, machine: Machine = LINUX) -> Finding:
    return check.verify(machine, RecordedProgress())


# Pointer, Python, files


@pytest.mark.parametrize("check", [EnvironmentPython(TRAINING_POINTER), EnvironmentFiles(TRAINING_POINTER)])
def test_what_is_not_there_is_told_apart(check: Check, home: Path) -> None:
    finding = look(check)
    assert (finding.state, finding.code) == ("failed", "environment-missing")
    assert finding.fix is not None
    assert not finding.fix.automatic, "installing is asked for by the person"
    assert finding.fix.needs_network
    assert (finding.message, finding.fix.label) == (
        "The training environment is not installed.",
        "Install the training environment",
    )
    # What an installation left that was cut short.
    (home / "envs" / "train-cpu-1").mkdir(parents=True)
    assert look(check) == finding
    (home / "envs" / "train-cpu-1" / MANIFEST).write_text("{}")
    finding = look(check)
    assert f"{TRAINING_POINTER} names no environment. Installed, but not in use: train-cpu-1." in finding.message
    assert finding.fix is not None
    assert (finding.fix.label, finding.fix.automatic) == ("Use train-cpu-1", True)
    (home / "envs" / TRAINING_POINTER).write_text("train-cpu-2")
    assert "train-cpu-2 is missing" in look(check).message


def test_a_python_that_does_not_start_is_found(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make("train-cpu-1", TORCH)
    check = EnvironmentPython(TRAINING_POINTER)
    assert look(check).state == "ok"
    (folder / "bin" / "python").unlink()
    script(folder / "bin" / "python", "sys.exit('no encodings')")
    assert repair.starts(folder) is False
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(repair, "START_TIMEOUT_S", 0.2)
    (folder / "bin" / "python").unlink()
    script(folder / "bin" / "python", "import time; time.sleep(20)")
    assert look(check).state == "unknown", "a timeout is no verdict"
    breaking.dangle_interpreter(folder)
    finding = look(check)
    assert (finding.state, finding.code) == ("failed", "environment-damaged")


def test_damaged_files_and_strangers_are_counted_and_named() -> None:
    folder = make("train-cpu-1", TORCH)
    check = EnvironmentFiles(TRAINING_POINTER)
    assert look(check).state == "ok"
    site = folder / "lib/python3.11/site-packages"
    (site / "torch/version.py").unlink()
    first = look(check).fix
    assert first is not None
    assert (first.label, first.action, first.automatic) == ("Repair the environment", "repair-environment", True)
    (site / "stranger-0.pth").write_text("import os")
    finding = look(check)
    assert finding.fix is not None
    assert finding.fix.label == "Repair 2 files"
    for number in range(30):
        (site / f"stranger-{number}.pth").write_text("import os")
    finding = look(check)
    assert ": 1 files missing or changed, 30 files of unknown origin" in finding.message
    assert finding.evidence.endswith("and 11 more")
    assert finding.fix is not None
    assert finding.fix.label == "Repair 31 files"


def test_a_change_that_keeps_size_and_time_shows_when_every_byte_is_read() -> None:
    folder = make("train-cpu-1", TORCH)
    path = folder / "lib/python3.11/site-packages/torch/version.py"
    status = path.stat()
    path.write_text(CU124.replace("12.4", "12.8"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert look(EnvironmentFiles(TRAINING_POINTER)).state == "ok"
    assert look(EnvironmentFiles(TRAINING_POINTER, full=True)).state == "failed"


def test_a_lost_list_is_a_fault() -> None:
    folder = make("train-cpu-1", TORCH)
    (folder / inventory.INVENTORY).write_text("nonsense")
    assert "the list of its files" in look(EnvironmentFiles(TRAINING_POINTER)).message


def test_every_byte_is_read_once_a_week_and_after_a_run_that_ended_before_its_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = make("train-cpu-1", TORCH)
    name = folder.name
    assert not environment.is_due(name), "building counts"
    monkeypatch.setattr(environment, "FULL_EVERY_S", -1.0)
    assert environment.is_due(name)
    assert "every byte was read" in look(EnvironmentFiles(TRAINING_POINTER)).message
    monkeypatch.setattr(environment, "FULL_EVERY_S", 1000.0)
    assert not environment.is_due(name)
    crashed = RunStatus(state=RunState.FAILED, step=0, ended_at=time.time() + 10)
    monkeypatch.setattr(runs, "iter_runs", lambda: iter([Run(Path("x"))]))
    monkeypatch.setattr(Run, "status", lambda run: crashed)
    assert environment.is_due(name)
    crashed.step = 5
    assert not environment.is_due(name)
    (folder / MANIFEST).write_text("[]")
    assert environment.is_due(name)
    (paths.config_dir() / "full-checks.json").write_text("[]")
    environment.remember_full(name)
    assert json.loads((paths.config_dir() / "full-checks.json").read_text()).keys() == {name}


def test_the_checks_of_an_environment_mend_it(monkeypatch: pytest.MonkeyPatch, progress: RecordedProgress) -> None:
    mended: list[str] = []
    monkeypatch.setattr(repair, "mend", lambda pointer, progress: mended.append(pointer))
    EnvironmentPython(LAUNCHER_POINTER).fix(progress)
    EnvironmentFiles(TRAINING_POINTER).fix(progress)
    packages.TorchBuild().fix(progress)
    assert mended == [LAUNCHER_POINTER, TRAINING_POINTER, TRAINING_POINTER]


def test_the_files_of_the_program_are_compared_with_what_was_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "Tunesmith" / "app"
    (app / "tunesmith_core").mkdir(parents=True)
    (app / "tunesmith_core" / "start.py").write_text("x = 1\n")
    monkeypatch.setattr(paths, "package_folder", lambda name: app / name)
    check = environment.ProgramFiles()
    assert "has no list" in look(check).message
    program.write_manifest(app.parent, "1.0")
    assert "intact" in look(check).message
    (app / "tunesmith_core" / "start.py").write_text("x = 2\n")
    finding = look(check)
    assert (finding.state, finding.code) == ("failed", "environment-damaged")
    assert "app/tunesmith_core/start.py" in finding.message
    assert finding.fix is not None
    assert (finding.fix.automatic, finding.fix.needs_network) == (False, True)


# Packages


def test_without_an_environment_packages_are_unknown() -> None:
    for check in (packages.TorchBuild(), packages.Triton(), packages.BitsAndBytes(), packages.Libraries(), gpu.Proof()):
        assert look(check).state == "unknown"


@pytest.mark.parametrize(
    ("profile", "version_file", "state", "code", "words"),
    [
        ("cu124", CU124, "ok", None, "PyTorch 2.6.0+cu124 for CUDA 12.4, profile cu124."),
        ("cpu", "__version__ = '2.6.0'\ncuda = None\n", "ok", None, "PyTorch 2.6.0, profile cpu."),
        ("cu124", None, "failed", "environment-damaged", "PyTorch is missing or can't be read."),
        ("cu124", "nonsense", "failed", "environment-damaged", "PyTorch is missing or can't be read."),
        (
            "cu124",
            "__version__ = '2.6.0+cpu'\ncuda = None\n",
            "failed",
            "torch-cpu-build",
            "PyTorch 2.6.0+cpu can't use a GPU. The profile cu124 needs the build for CUDA 12.4.",
        ),
        (
            "cu124",
            CU124.replace("2.6.0", "2.4.1"),
            "failed",
            "torch-too-old-for-transformers",
            "PyTorch 2.4.1+cu124 is too old for the other libraries.",
        ),
        (
            "cu124",
            CU124.replace("2.6.0", "2.15.0"),
            "failed",
            "environment-damaged",
            "PyTorch 2.15.0+cu124 is installed instead of 2.6.0.",
        ),
        (
            "cu128",
            CU124,
            "failed",
            "environment-damaged",
            "PyTorch 2.6.0+cu124 is built for CUDA 12.4. The profile cu128 needs CUDA 12.8.",
        ),
        (
            "cu124",
            "__version__ = 'odd'\ncuda = '12.4'\n",
            "failed",
            "torch-too-old-for-transformers",
            "PyTorch odd is too old for the other libraries.",
        ),
    ],
)
def test_the_build_of_pytorch_is_read_without_importing_it(
    profile: str, version_file: str | None, state: str, code: str | None, words: str
) -> None:
    make(f"train-{profile}-linux-py311-1", TORCH, version_file)
    finding = look(packages.TorchBuild())
    assert (finding.state, finding.code) == (state, code)
    assert finding.message == words


@pytest.mark.parametrize(
    ("torch", "triton"),
    [
        ("2.6.0", "3.2.0"),
        ("2.7.1", "3.3.1"),
        ("2.8.0", "3.4.0"),
        ("2.9.1", "3.5.1"),
        ("2.10.0", "3.6.0"),
        ("2.11.0", "3.6.0"),
    ],
)
def test_each_pytorch_has_its_triton(torch: str, triton: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs are those in the metadata of PyTorch's wheels."""
    folder = make("train-cu128-linux-py311-1", TORCH | {"triton": triton})
    monkeypatch.setattr(packages, "torch_build", lambda _folder: (torch, "12.8"))
    finding = look(packages.Triton(), Machine(system="linux"))
    assert (finding.state, finding.message, finding.fix) == ("ok", f"triton {triton} matches PyTorch.", None)
    info = folder / "lib/python3.11/site-packages" / f"triton-{triton}.dist-info"
    info.rename(info.with_name("triton-3.1.9.dist-info"))
    finding = look(packages.Triton(), Machine(system="linux"))
    assert (finding.state, finding.fix) == ("failed", packages.REPAIR)
    needed = triton.rpartition(".")[0]
    assert finding.message == f"triton 3.1.9 does not match PyTorch {torch}, which needs {needed}."


@pytest.mark.parametrize(
    ("profile", "versions", "system", "state", "words"),
    [
        ("cu124", TORCH, "linux", "ok", "triton 3.2.0 matches PyTorch."),
        ("cpu", {}, "linux", "ok", "Not needed for training on the processor."),
        ("cu124", {"triton-windows": "3.2.0.post21"}, "windows", "ok", "triton-windows 3.2.0.post21 matches PyTorch."),
        (
            "cu124",
            {"triton": "3.2.0", "triton-windows": "3.2.0.post21"},
            "windows",
            "failed",
            "triton and triton-windows are both installed and overwrite each other's files.",
        ),
        ("cu124", TORCH, "windows", "failed", "triton-windows is not installed."),
        (
            "cu124",
            TORCH | {"triton": "3.4.0"},
            "linux",
            "failed",
            "triton 3.4.0 does not match PyTorch 2.6.0+cu124, which needs 3.2.",
        ),
    ],
)
def test_triton_must_fit_pytorch(profile: str, versions: dict[str, str], system: str, state: str, words: str) -> None:
    make(f"train-{profile}-linux-py311-1", versions)
    finding = look(packages.Triton(), Machine(system=system))
    assert (finding.state, finding.code) == (state, None if state == "ok" else "triton-not-installed")
    assert finding.message == words


@pytest.mark.parametrize(
    ("versions", "version_file", "state", "words"),
    [
        (TORCH, CU124, "ok", "bitsandbytes 0.50.2."),
        (TORCH, None, "ok", "bitsandbytes 0.50.2."),
        ({}, CU124, "failed", "bitsandbytes is not installed."),
        (
            TORCH | {"bitsandbytes-windows": "0.37"},
            CU124,
            "failed",
            "bitsandbytes-windows is an old fork that hides bitsandbytes.",
        ),
        (TORCH, CU124.replace("12.4", "13.0"), "failed", "bitsandbytes has no library for CUDA 13."),
    ],
)
def test_the_4_bit_library_must_serve_the_cuda_version(
    versions: dict[str, str], version_file: str | None, state: str, words: str
) -> None:
    make("train-cu124-linux-py311-1", versions, version_file)
    finding = look(packages.BitsAndBytes())
    assert (finding.state, finding.code) == (state, None if state == "ok" else "bnb-cuda-lib-missing")
    assert finding.message == words


@pytest.mark.parametrize(
    ("versions", "code", "words"),
    [
        (TORCH | {"numpy": "1.26.4"}, "numpy-abi-mismatch", "Wrong packages: 1. First: numpy 1.26.4 instead of 2.5.5."),
        (
            TORCH | {"flash-attn": "2.7"},
            "flash-attn-missing",
            "flash-attn is installed. It must match PyTorch, CUDA and GPU exactly, and nothing here needs it.",
        ),
        (
            TORCH | {"xformers": "1"},
            "environment-damaged",
            "Wrong packages: 1. First: xformers 1 does not belong here.",
        ),
        ({"torch": "2.6.0"}, "numpy-abi-mismatch", "Wrong packages: 3. First: bitsandbytes 0.50.2 is missing."),
    ],
)
def test_packages_are_compared_with_the_lock(versions: dict[str, str], code: str, words: str) -> None:
    make("train-cu124-linux-py311-1", versions)
    finding = look(packages.Libraries())
    assert (finding.state, finding.code) == ("failed", code)
    assert finding.message == words


def test_a_lock_of_another_version_is_no_damage(locks: Path) -> None:
    make("train-cu124-linux-py311-1", TORCH)
    assert look(packages.Libraries()).state == "ok"
    (locks / "tiny.txt").write_text("torch==2.7.0 \\\n")
    finding = look(packages.Libraries())
    assert (finding.state, finding.code) == ("warning", None)
    assert finding.fix is not None
    assert (finding.fix.automatic, finding.fix.needs_network) == (False, True)
    (locks / "tiny.txt").unlink()
    assert look(packages.Libraries()).state == "unknown"


# GPU


@pytest.mark.parametrize(
    ("profile", "machine", "state", "code", "words"),
    [
        ("cpu", LINUX, "ok", None, "No NVIDIA GPU: CPU."),
        ("cu124", Machine(system="linux"), "unknown", None, "The GPU did not answer in time."),
        ("cu124", WITH_GPU, "ok", None, "RTX 3060, driver 550: CUDA 12.4."),
        (
            "cpu",
            WITH_GPU,
            "warning",
            "torch-cpu-build",
            "RTX 3060, driver 550: CUDA 12.4 would use this GPU. The installed build trains on the processor.",
        ),
        ("cu124", LINUX, "warning", None, "No NVIDIA GPU: CPU. The installed build is for CUDA 12.4."),
        (
            "cu124",
            Machine(
                system="linux",
                gpus=(Gpu(index=0, name="RTX 5090", compute_capability=(12, 0)),),
                driver=Driver(version="575.51"),
            ),
            "failed",
            "no-kernel-image-for-arch",
            "CUDA 12.4 can't use RTX 5090. CUDA 12.8 can.",
        ),
        ("cu128", WITH_GPU, "ok", None, "RTX 3060, driver 550: CUDA 12.8, as requested."),
        (
            "cu124",
            Machine(system="linux", gpus=(RTX,), driver=Driver(version="470.1")),
            "failed",
            "driver-too-old",
            "RTX 3060, driver 470: CUDA 12.4 needs driver 525.60 or newer.",
        ),
        (
            "cu124",
            Machine(system="linux", gpus=(RTX,)),
            "failed",
            "driver-missing",
            "RTX 3060: CUDA 12.4 needs the NVIDIA driver, which is missing.",
        ),
        (
            "cu124",
            Machine(
                system="linux",
                gpus=(Gpu(index=0, name="GTX 1080", compute_capability=(6, 1)),),
                driver=Driver(version="550.1"),
            ),
            "warning",
            "triton-arch-unsupported",
            "GTX 1080, driver 550: CUDA 12.4. No Triton kernels for GTX 1080. "
            "Training needs more memory and time there.",
        ),
    ],
)
def test_the_installed_build_is_judged_by_the_gpu(
    profile: str, machine: Machine, state: str, code: str | None, words: str
) -> None:
    make(f"train-{profile}-linux-py311-1", TORCH)
    finding = look(gpu.GpuServed(), machine)
    assert (finding.state, finding.code) == (state, code)
    assert finding.message == words
    if finding.fix:
        by_person = finding.fix.action == "open-driver-page"
        assert (finding.fix.automatic, finding.fix.needs_network) == (not by_person, True)


def test_another_profile_is_installed_beside(monkeypatch: pytest.MonkeyPatch, progress: RecordedProgress) -> None:
    installed: list[object] = []
    monkeypatch.setattr(install, "install", lambda profile, progress, window: installed.append(profile))
    gpu.GpuServed().fix(progress)
    assert installed == [None]


def test_gpu_memory_is_a_snapshot_with_names() -> None:
    assert look(gpu.GpuMemory(), Machine(system="linux")).state == "unknown"
    assert look(gpu.GpuMemory()).message == "No NVIDIA GPU."
    assert look(gpu.GpuMemory(), Machine(system="linux", gpus=(Gpu(index=0, name="x"),))).state == "unknown"
    free = look(gpu.GpuMemory(), WITH_GPU)
    assert (free.state, free.message) == ("ok", "NVIDIA GeForce RTX 3060: 11.0 GiB of 12.0 GiB free.")
    holders = (GpuProcess(pid=7, name="chrome", used_bytes=2 * GIB), GpuProcess(pid=8))
    full = Gpu(index=0, name="RTX 3060", total_bytes=12 * GIB, free_bytes=2 * GIB, processes=holders)
    finding = look(gpu.GpuMemory(), Machine(system="linux", gpus=(full, RTX)))
    assert (finding.state, finding.code) == ("warning", "cuda-oom")
    assert finding.message == "RTX 3060: 2.0 GiB of 12.0 GiB free. Held by: chrome (2.0 GiB), pid 8."
    assert finding.fix is not None
    assert not finding.fix.automatic, "whose programs they are, only the person knows"
    assert finding.evidence.splitlines() == [
        "GPU 0: RTX 3060: 2.0 GiB of 12.0 GiB free",
        "    chrome (pid 7): 2.0 GiB",
        "    unknown program (pid 8): size unknown",
        "GPU 0: NVIDIA GeForce RTX 3060: 11.0 GiB of 12.0 GiB free",
    ]


@pytest.mark.parametrize(
    ("total_bytes", "free_bytes", "state"),
    [(8, 4, "ok"), (8, 3, "warning"), (8, 0, "warning"), (8, None, "unknown"), (None, 4, "unknown"), (0, 0, "unknown")],
)
def test_half_of_a_gpus_memory_should_be_free(total_bytes: int | None, free_bytes: int | None, state: str) -> None:
    card = Gpu(index=0, name="x", total_bytes=total_bytes, free_bytes=free_bytes)
    finding = look(gpu.GpuMemory(), Machine(system="linux", gpus=(card,)))
    assert finding.state == state
    assert "Held by" not in finding.message


@pytest.mark.parametrize(
    ("record", "state", "words"),
    [
        (None, "warning", "train-cu124-linux-py311-1: training was never tested on this computer."),
        (
            {"state": "failed", "error": {"code": "bug", "message": "it broke"}},
            "failed",
            "The last training test failed: it broke",
        ),
        ({"state": "unknown", "error": None}, "warning", "The last training test failed: None"),
        (
            {"state": "ok", "device": "cuda", "gpus": [{"name": "Other"}]},
            "warning",
            "The GPUs have changed since the training test.",
        ),
        (
            {"state": "ok", "device": "cuda", "gpus": [{"name": RTX.name}], "driver": "1"},
            "warning",
            "The driver changed from 1 to 550.54 since the training test.",
        ),
        (
            {"state": "ok", "device": "cuda", "gpus": [{"name": RTX.name}], "proven_at": 1_000_036_800},
            "ok",
            "Training was tested on NVIDIA GeForce RTX 3060 on 2001-09-09.",
        ),
        (
            {"state": "ok", "device": "cpu", "proven_at": 1_000_036_800},
            "ok",
            "Training was tested on the processor on 2001-09-09.",
        ),
    ],
)
def test_the_proof_is_compared_with_the_computer(record: dict[str, object] | None, state: str, words: str) -> None:
    folder = make("train-cu124-linux-py311-1", TORCH)
    if record is not None:
        (folder / PROOF).write_text(json.dumps(record))
    finding = look(gpu.Proof(), WITH_GPU)
    assert finding.state == state
    assert finding.message == words
    assert look(EnvironmentFiles(TRAINING_POINTER)).state == "ok", "the record is no stranger"


def test_the_proof_is_made_again(monkeypatch: pytest.MonkeyPatch, progress: RecordedProgress) -> None:
    proven: list[str] = []
    monkeypatch.setattr(proof, "prove", lambda folder, device, progress: proven.append(device))
    for profile in ("cpu", "cu124"):
        make(f"train-{profile}-linux-py311-1", TORCH)
        gpu.Proof().fix(progress)
    assert proven == ["cpu", "cuda"]


# Leftovers


def test_broken_environments_beside_are_found_and_removed(progress: RecordedProgress) -> None:
    check = leftovers.OtherEnvironments()
    assert look(check).message == "None."
    good, broken = make("train-cpu-2", TORCH), make("train-cpu-3", TORCH)
    current = make("train-cpu-1", TORCH)
    assert look(check).message == "Kept: train-cpu-2, train-cpu-3."
    (broken / "lib/python3.11/site-packages/torch/version.py").unlink()
    dead = make("launcher-4", TORCH, pointer="other")
    breaking.dangle_interpreter(dead)
    inventory.seal(dead, {})
    (paths.envs_dir() / "train-cpu-5").mkdir()
    finding = look(check)
    assert finding.state == "warning"
    assert "3 broken and unused" in finding.message
    assert "launcher-4: Python does not start" in finding.evidence
    assert "train-cpu-3: 1 damaged files" in finding.evidence
    assert "train-cpu-5: incomplete" in finding.evidence
    check.fix(progress)
    assert sorted(path.name for path in paths.envs_dir().iterdir() if path.is_dir()) == [current.name, good.name]
    removed = sorted(line.strip() for line in progress.lines if "Removed" in line)
    assert removed == [f"Removed {name}" for name in ("launcher-4", "train-cpu-3", "train-cpu-5")]


def test_half_built_folders_are_removed_when_nobody_builds(home: Path, progress: RecordedProgress) -> None:
    check = leftovers.Leftovers()
    assert look(check).message == "None."
    half_built = [
        home / "envs" / "train-cpu-1.building-77",
        home / "envs" / f"{file_repair.STAGING_MARK}77",
        home / "tmp" / "reinstall-77",
    ]
    for folder in half_built:
        folder.mkdir(parents=True)
    note = home / "envs" / "train-cpu-2.building-78"
    note.write_text("a file is nobody's half-built environment")
    with FileLock(home / "locks" / "setup.lock"):
        assert "running right now" in look(check).message
    finding = look(check)
    assert "Incomplete folders: 3." in finding.message
    check.fix(progress)
    assert not any(folder.exists() for folder in half_built)
    assert note.exists()
    removed = {line.strip() for line in progress.lines if "Removed" in line}
    assert removed == {f"Removed {folder}" for folder in half_built}


def test_a_start_that_is_refused_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert repair.starts(tmp_path) is False
