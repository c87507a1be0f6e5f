"""States of a computer and its environment that pages and wizard must show."""

from __future__ import annotations

from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.machine import Driver, Gpu, GpuProcess, Machine, Wsl
from tunesmith_core.setup_messages import Finding, Fix, Part, Plan, State
from tunesmith_gui.environment.model import DiskUse, EnvironmentModel, Installed, Proof
from tunesmith_gui.environment.setup_activity import Activity, Command
from tunesmith_gui.environment.setup_events import NoteEvent, PhaseEvent, ProgressEvent


def check(
    name: str, title: str, state: str, message: str = "", code: str | None = None, fix: Fix | None = None
) -> Finding:
    """What a check tells."""
    return Finding(State(state), message, code, fix=fix, id=name, title=title)


GIB = 2**30
NOW = 1e9
HOLDERS = (GpuProcess(pid=4412, name="chrome.exe", used_bytes=3 * GIB), GpuProcess(pid=100, name="dwm.exe"))
RTX = Gpu(
    index=0,
    name="NVIDIA GeForce RTX 3060 Laptop GPU",
    compute_capability=(8, 6),
    total_bytes=6 * GIB,
    free_bytes=2 * GIB,
    processes=HOLDERS,
)
SMALL = Gpu(index=1, name="NVIDIA GeForce GTX 1650", total_bytes=4 * GIB)
MACHINE = Machine(
    system="windows",
    system_name="Windows 11 Pro 23H2",
    cpu_name="AMD Ryzen 7 5800H",
    cpu_threads=16,
    ram_total_bytes=16 * GIB,
    ram_free_bytes=9 * GIB,
    gpus=(RTX, SMALL),
    driver=Driver(version="560.94", cuda_version=(12, 6)),
    wsl=Wsl(state="not-installed"),
)
NO_GPU = Machine(system="linux", gpus=(), other_gpus=("AMD Radeon RX 6600",))
PROOF = Proof(NOW, "NVIDIA GeForce RTX 3060", {"torch": "2.6.0+cu124"}, (("Import the libraries", True, 4.1),))
THERE = Installed(name="train-cu124-x", profile="cu124", built_at=NOW, proof=PROOF, previous="train-cu124-old")
MISSING = Installed(problem=EnvironmentProblem("environment-missing", "no pointer"))
PLAN = Plan((Part("Training environment", 4 * GIB, 9 * GIB),), "/d", 50 * GIB, 540, "cu124", "because")
DISK = (DiskUse("environments", 11 * GIB), DiskUse("runs", GIB), DiskUse("compiled", GIB, can_free=True))
FULL = check(
    "disk", "Free disk space", "warning", "8.0 GiB free", "disk-full", fix=Fix("Clear", "clear-compile-caches")
)
DAMAGED = check(
    "training-files",
    "Files of the training environment",
    "failed",
    "3 files differ from what was installed: bitsandbytes/libbitsandbytes_cuda124.dll",
    "environment-damaged",
    fix=Fix("Repair 3 files", "repair-environment", needs_network=True, bytes=69 * 2**20),
)
RUNTIME = check(
    "vc-runtime",
    "Visual C++ runtime",
    "failed",
    "It is missing.",
    "dll-load-failed-vcredist",
    fix=Fix("Install the Visual C++ runtime", "install-vc-runtime", automatic=False, needs_network=True),
)
OK = check("driver", "GPU and driver", "ok", "Driver 560.94 supports CUDA 12.6.")
PROBLEM = EnvironmentProblem("hub-ssl-or-proxy", "certificate verify failed", context="long log")


def fill(
    model: EnvironmentModel,
    *,
    machine: Machine = MACHINE,
    installed: Installed = THERE,
    checks: tuple[Finding, ...] = (OK,),
    plan: Plan | None = PLAN,
) -> None:
    """Puts a model into a state."""
    model.machine, model.installed, model.plan = machine, installed, plan
    model.profile, model.choice = "cu124", "RTX 3060, driver 560: CUDA 12.4"
    model.checks = {check.id: check for check in checks}
    model.disk = DISK


def work(model: EnvironmentModel, command: Command, done: int = 61) -> None:
    """Lets a command go on."""
    model.begin(Activity(command))
    model.apply(PhaseEvent("Training environment"), NOW)
    model.apply(NoteEvent("Downloading torch 2.6.0"), NOW)
    model.apply(ProgressEvent("torch 2.6.0", done, 100, 12.4e6, 180.0), NOW)
