"""The GPU: does the installed build of PyTorch serve it, who holds its memory, was training proven on it."""

from __future__ import annotations

import time
from typing import Any

from tunesmith_core.environments import TRAINING_POINTER
from tunesmith_core.errors import TunesmithError
from tunesmith_core.machine import Gpu, GpuProcess, Machine
from tunesmith_core.messages import Message, joined
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.checks.packages import profile_of
from tunesmith_setup.environments import profiles, proof, repair
from tunesmith_setup.installation import install
from tunesmith_setup.progress import Progress, size_text

MIN_FREE_SHARE = 0.5
"""A GPU with less of its memory free is held by others to a degree that a person wants to know."""
DRIVER_PAGE = Fix("Open NVIDIA's driver page", "open-driver-page", automatic=False, needs_network=True)


class GpuServed(Check):
    """Driver, GPU and installed build of PyTorch fit together."""

    id = "driver"
    title = "GPU and driver"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Judge the installed profile by the facts about this computer."""
        if machine.gpus is None:
            return Finding(State.UNKNOWN, "The GPU did not answer in time.")
        choice = profiles.choose(machine)
        folder = repair.pointed_folder(TRAINING_POINTER)
        installed = profile_of(folder) if folder is not None and folder.is_dir() else choice.profile.name
        if choice.problem:
            return Finding(
                State.FAILED,
                Message("{sentence}.", sentence=choice.sentence),
                choice.problem,
                fix=DRIVER_PAGE,
            )
        if installed not in profiles.PROFILES or installed == choice.profile.name:
            state = State.WARNING if any(notice.code != "driver-missing" for notice in choice.warnings) else State.OK
            notes = [notice.text for notice in choice.warnings]
            code = choice.warnings[0].code if state is State.WARNING else None
            return Finding(state, joined([Message("{sentence}.", sentence=choice.sentence), *notes]), code)
        return self._other(installed, choice, machine)

    def _other(self, installed: str, choice: profiles.Choice, machine: Machine) -> Finding:
        """Judge an installed profile that would not be chosen today."""
        title = profiles.PROFILES[installed].title
        fix = Fix(
            Message("Install the build for {title}", title=choice.profile.title), "switch-profile", needs_network=True
        )
        kept = profiles.choose(machine, installed)
        unusable = [notice for notice in kept.warnings if notice.code != "triton-arch-unsupported"]
        if unusable and choice.profile.oldest_gpu is not None:
            return Finding(State.FAILED, unusable[0].text, unusable[0].code, fix=fix)
        if choice.profile.oldest_gpu is None:
            return Finding(
                State.WARNING,
                Message("{sentence}. The installed build is for {title}.", sentence=choice.sentence, title=title),
                fix=fix,
            )
        if profiles.PROFILES[installed].oldest_gpu is None:
            text = Message(
                "{sentence} would use this GPU. The installed build trains on the processor.",
                sentence=choice.sentence,
            )
            return Finding(State.WARNING, text, "torch-cpu-build", fix=fix)
        return Finding(State.OK, Message("{sentence}.", sentence=kept.sentence))

    def fix(self, progress: Progress) -> None:
        """Install the build for this GPU beside the current one, and switch to it."""
        install.install(None, progress, window=False)


class GpuMemory(Check):
    """Who holds the GPU's memory: a snapshot."""

    id = "gpu-memory"
    title = "GPU memory"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """List free memory and holders of every GPU."""
        if machine.gpus is None:
            return Finding(State.UNKNOWN, "The GPU did not answer in time.")
        if not machine.gpus:
            return Finding(State.OK, "No NVIDIA GPU.")
        known = [
            (gpu, gpu.free_bytes, gpu.total_bytes)
            for gpu in machine.gpus
            if gpu.total_bytes and gpu.free_bytes is not None
        ]
        if not known:
            return Finding(State.UNKNOWN, "The driver does not report the memory.")
        evidence = "\n".join(line for gpu, *memory in known for line in _snapshot(gpu, *memory))
        full = [each for each in known if each[1] < MIN_FREE_SHARE * each[2]]
        text = joined([_free_text(*each) for each in full or known], ", ")
        if not full:
            return Finding(State.OK, Message("{text}.", text=text), evidence=evidence)
        names = dict.fromkeys(_holder(process) for gpu, *_ in full for process in gpu.processes or ())
        held = Message(" Held by: {names}.", names=", ".join(names)) if names else ""
        fix = Fix("Close these programs, then check again", "retry", automatic=False)
        return Finding(State.WARNING, Message("{text}.{held}", text=text, held=held), "cuda-oom", evidence, fix)


def _free_text(gpu: Gpu, free_bytes: int, total_bytes: int) -> Message:
    free, total = size_text(free_bytes), size_text(total_bytes)
    return Message("{name}: {free} of {total} free", name=gpu.name, free=free, total=total)


def _holder(process: GpuProcess) -> str:
    used = f" ({size_text(process.used_bytes)})" if process.used_bytes is not None else ""
    return f"{process.name or f'pid {process.pid}'}{used}"


def _snapshot(gpu: Gpu, free_bytes: int, total_bytes: int) -> list[str]:
    lines = [f"GPU {gpu.index}: {_free_text(gpu, free_bytes, total_bytes)}"]
    for process in gpu.processes or ():
        used = size_text(process.used_bytes) if process.used_bytes is not None else "size unknown"
        lines.append(f"    {process.name or 'unknown program'} (pid {process.pid}): {used}")
    return lines


class Proof(Check):
    """Training was proven on this very GPU, and came out well."""

    id = "proof"
    title = "Training test"

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Compare the record of the proof with the computer."""
        folder = repair.pointed_folder(TRAINING_POINTER)
        if folder is None or not folder.is_dir():
            return Finding(State.UNKNOWN, "The training environment is not installed.")
        record = proof.read(folder)
        fix = Fix("Test training now", "prove-again")
        if record is None:
            return Finding(
                State.WARNING, Message("{name}: training was never tested on this computer.", name=folder.name), fix=fix
            )
        error = record.get("error")
        if not proof.is_proven(folder):
            failure = TunesmithError.from_dict(error if isinstance(error, dict) else {})
            state = State.WARNING if record.get("state") == "unknown" else State.FAILED
            return Finding(
                state,
                Message("The last training test failed: {message}", message=failure.message),
                failure.code,
                fix=fix,
            )
        return _compare(record, machine, fix)

    def fix(self, progress: Progress) -> None:
        """Run the steps of the proof again and keep their record."""
        folder = repair.pointed_folder(TRAINING_POINTER)
        assert folder is not None, "there is nothing to prove without an environment"
        proof.prove(folder, "cpu" if profile_of(folder) == "cpu" else "cuda", progress)


def _compare(record: dict[str, Any], machine: Machine, fix: Fix) -> Finding:  # Any: JSON values
    """Compare the GPUs and the driver of a proof with those of the computer."""
    proven = [gpu for gpu in record.get("gpus") or () if isinstance(gpu, dict)]
    here = machine.gpus
    if record.get("device") == "cuda" and here is not None:
        if sorted(str(gpu.get("name")) for gpu in proven) != sorted(gpu.name for gpu in here):
            return Finding(State.WARNING, "The GPUs have changed since the training test.", fix=fix)
        before, now = record.get("driver"), machine.driver.version if machine.driver else None
        if before and now and before != now:
            text = Message("The driver changed from {before} to {now} since the training test.", before=before, now=now)
            return Finding(State.WARNING, text, fix=fix)
    where = ", ".join(str(gpu.get("name")) for gpu in proven) or Message("the processor")
    when = time.strftime("%Y-%m-%d", time.localtime(float(record["proven_at"])))
    return Finding(State.OK, Message("Training was tested on {where} on {when}.", where=where, when=when))
