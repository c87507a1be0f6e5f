"""What the computer brings along: folders, memory, runtimes, other people's variables, security software."""

from __future__ import annotations

import sys

from tunesmith_core import paths, placement
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.progress import GIB, Progress, size_text

MIN_RAM_BYTES = 7 * GIB
MIN_COMMIT_BYTES = 8 * GIB
"""Windows refuses to start CUDA's libraries with less left to promise (error 1455)."""
VC_RUNTIME_WANTED = (14, 42)
"""What triton-windows recommends; PyTorch itself starts with (14, 20)."""
VC_RUNTIME_NEEDED = (14, 20)
MOVE = Fix("Use a folder with a short, plain path", "move-folders", automatic=False)


class DataFolder(Check):
    """The folders of environments, caches and runs can serve: writable, on a fixed drive, and plain on Windows."""

    id = "folder"
    title = "Data folder"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Write a test file; then judge names and drive by the rules for choosing a folder."""
        root, work = paths.data_root(), paths.work_root()
        unwritable = placement.writing_problem(root)
        if unwritable:
            return Finding(State.FAILED, unwritable.message, unwritable.code, fix=MOVE)
        reason = placement.needs_short_folder(work) if machine.system == "windows" else None
        plain = str(work).isascii() and " " not in str(work)
        if reason and not plain:
            text = Message("{work}: {reason}. Compilers and PyTorch fail with that.", work=work, reason=reason)
            return Finding(State.FAILED, text, "path-non-ascii", fix=MOVE)
        problem = placement.problem_of(root, machine)
        if problem:
            return Finding(State.WARNING, problem.message, problem.code, fix=MOVE)
        if reason and not machine.long_paths:
            text = Message(
                "{work}: {reason}. Compilers may exceed the 260 characters that Windows allows.",
                work=work,
                reason=reason,
            )
            return Finding(State.WARNING, text, "path-too-long", fix=MOVE)
        return Finding(State.OK, Message("{root} can be written.", root=root))


class Memory(Check):
    """Enough main memory, and on Windows enough that the system may promise."""

    id = "memory"
    title = "Memory of the computer"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Compare main memory and commit limit with what PyTorch needs to start."""
        if machine.ram_total_bytes is None:
            return Finding(State.UNKNOWN, "Reading the memory took too long.")
        free = (
            Message(", {size} free", size=size_text(machine.ram_free_bytes))
            if machine.ram_free_bytes is not None
            else ""
        )
        text = Message("{size} of main memory{free}.", size=size_text(machine.ram_total_bytes), free=free)
        if machine.system == "windows" and None not in (machine.commit_limit_bytes, machine.commit_used_bytes):
            left = (machine.commit_limit_bytes or 0) - (machine.commit_used_bytes or 0)
            if left < MIN_COMMIT_BYTES:
                fix = Fix("Let Windows manage the page file", "open-page-file-settings", automatic=False)
                text = Message(
                    "Windows has only {left} left for programs. PyTorch needs 8 GiB to start.",
                    left=size_text(left),
                )
                return Finding(State.FAILED, text, "page-file-too-small", fix=fix)
        if machine.ram_total_bytes < MIN_RAM_BYTES:
            return Finding(
                State.WARNING, Message("{text} Models above 0.5 B parameters won't load.", text=text), "memory-full"
            )
        return Finding(State.OK, text)


class VcRuntime(Check):
    """Microsoft's C++ runtime, which PyTorch and Triton load on Windows."""

    id = "vc-runtime"
    title = "Visual C++ runtime"
    systems = ("windows",)

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Compare the version with what PyTorch and Triton need."""
        version = machine.vc_runtime
        if version is None:
            return Finding(State.UNKNOWN, "Looking up the runtime took too long.")
        fix = Fix("Install the Visual C++ runtime", "install-vc-runtime", automatic=False, needs_network=True)
        if version < VC_RUNTIME_NEEDED:
            found = (
                Message("version {major}.{minor} is too old", major=version[0], minor=version[1])
                if any(version)
                else Message("it is missing")
            )
            text = Message("PyTorch can't be loaded without the Visual C++ runtime: {found}.", found=found)
            return Finding(State.FAILED, text, "dll-load-failed-vcredist", fix=fix)
        text = Message("Version {major}.{minor}.", major=version[0], minor=version[1])
        if version < VC_RUNTIME_WANTED:
            return Finding(
                State.WARNING,
                Message("{text} Triton needs 14.42 or newer.", text=text),
                "dll-load-failed-vcredist",
                fix=fix,
            )
        return Finding(State.OK, text)


class LongPaths(Check):
    """Whether Windows allows long paths; ours are short, so this is advice."""

    id = "long-paths"
    title = "Long paths"
    systems = ("windows",)

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Say whether long paths are allowed."""
        if machine.long_paths is None:
            return Finding(State.UNKNOWN, "Reading the setting took too long.")
        if machine.long_paths:
            return Finding(State.OK, "Windows allows long paths.")
        return Finding(State.OK, "Windows allows 260 characters. Tunesmith's folders are short enough.")


class Leaks(Check):
    """Variables of the person's shell that lead libraries astray; runs never see them."""

    id = "variables"
    title = "Variables of your shell"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """List what runs are kept from."""
        if not machine.leaks:
            return Finding(State.OK, "None that misleads compilers or libraries.")
        lines = "\n".join(f"{name}={value}" for name, value in machine.leaks.items())
        text = Message(
            "Hidden from runs, because they mislead compilers or libraries: {names}.", names=", ".join(machine.leaks)
        )
        return Finding(State.OK, text, evidence=lines)


class Security(Check):
    """Virus scanners and application control, which can hold or remove compiled kernels."""

    id = "security"
    title = "Security software"
    systems = ("windows",)

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Name what was found; it is a hint and no fault."""
        if machine.security is None:
            return Finding(State.UNKNOWN, "Looking up security software took too long.")
        if not machine.security:
            return Finding(State.OK, "None found that could block compiled kernels.")
        text = Message(
            "{names}: if kernels fail to compile, allow the folder {folder} there.",
            names=", ".join(machine.security),
            folder=paths.data_root(),
        )
        return Finding(State.OK, text)


class WslState(Check):
    """The Windows Subsystem for Linux, the way out when something can't be made to work on Windows itself."""

    id = "wsl"
    title = "Windows Subsystem for Linux"
    systems = ("windows",)

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Say whether it could be used."""
        if machine.wsl is None:
            return Finding(State.UNKNOWN, "WSL did not answer in time.")
        texts = {
            "ready": Message("Ready as a fallback."),
            "no-distribution": Message("Installed without a distribution. Only needed as a fallback."),
            "version-1": Message("The distribution uses WSL 1, which has no GPU. Only needed as a fallback."),
            "not-installed": Message("Not installed. Only needed as a fallback."),
        }
        if machine.wsl.state in texts:
            return Finding(State.OK, texts[machine.wsl.state])
        detail = machine.wsl.detail or ""
        fix = Fix("Set up WSL", "install-wsl", automatic=False, needs_network=True)
        return Finding(State.WARNING, "WSL is installed but does not work.", "wsl-not-usable", detail, fix)


class ProgramPython(Check):
    """The Python that runs this very program is one that the environments can be made with."""

    id = "python"
    title = "Python"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Look for a supported Python among those on this computer."""
        running = ".".join(str(number) for number in sys.version_info[:3])
        usable = [python for python in machine.pythons or () if python.problem is None and python.version]
        names = ", ".join(dict.fromkeys(".".join(str(number) for number in python.version or ()) for python in usable))
        if usable:
            return Finding(
                State.OK,
                Message(
                    "Tunesmith runs on Python {running}. Environments can be built with {names}.",
                    running=running,
                    names=names,
                ),
            )
        if machine.pythons is None:
            return Finding(
                State.UNKNOWN,
                Message("Tunesmith runs on Python {running}. Looking for others took too long.", running=running),
            )
        fix = Fix("Install Python 3.12", "retry", automatic=False, needs_network=True)
        text = Message(
            "Tunesmith runs on Python {running}. Building environments needs Python 3.11 to 3.13, and none was found.",
            running=running,
        )
        return Finding(State.WARNING, text, "python-unsupported", fix=fix)
