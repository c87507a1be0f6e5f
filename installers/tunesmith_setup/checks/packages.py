"""The packages of the training environment, read from files: nothing is imported to learn that it is broken."""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.environments import TRAINING_POINTER
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup.checks.base import Check
from tunesmith_setup.environments import repair
from tunesmith_setup.packages import inventory, scratch, stores
from tunesmith_setup.progress import Progress

CUDA_OF_PROFILE = {"cu124": "12.4", "cu128": "12.8"}
TRITON_OF_TORCH: dict[tuple[int, ...], tuple[int, ...]] = {
    (2, 6): (3, 2),
    (2, 7): (3, 3),
    (2, 8): (3, 4),
    (2, 9): (3, 5),
    (2, 10): (3, 6),
    (2, 11): (3, 6),
}
"""Triton that each PyTorch pins in its metadata; on Windows the package triton-windows of the same numbers."""
OLDEST_TORCH = (2, 6)
"""First PyTorch that the pinned transformers accepts."""
TOKENIZER_PACKAGES = frozenset({"sentencepiece", "protobuf", "tiktoken", "tokenizers"})
CODES = {
    "numpy": "numpy-abi-mismatch",
    "transformers": "transformers-version-mismatch",
    "trl": "trl-peft-api-mismatch",
    "peft": "trl-peft-api-mismatch",
} | dict.fromkeys(TOKENIZER_PACKAGES, "tokenizer-missing-dep")
REPAIR = Fix("Reinstall the packages", "repair-environment")
NOT_INSTALLED = Finding(State.UNKNOWN, "The training environment is not installed.")


def numbers(version: str) -> tuple[int, ...]:
    """Return major and minor of a version; nothing when it has no numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def profile_of(folder: Path) -> str:
    """Return the profile that an environment was built for, from its name."""
    return folder.name.removeprefix("train-").partition("-")[0]


def torch_build(folder: Path) -> tuple[str, str | None] | None:
    """Return version and CUDA of the installed PyTorch, CUDA None for a build without; None when it can't be read."""
    for site in inventory.site_folders(folder):
        try:
            text = (site / "torch" / "version.py").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
        cuda = re.search(r"^cuda(?:: [^=]+)? = (?:'([\d.]+)'|None)", text, re.MULTILINE)
        if version:
            return version[1], cuda[1] if cuda else None
    return None


class PackageCheck(Check):
    """A check of the training environment's packages, mended by mending the environment."""

    def verify(self, machine: Machine, progress: Progress) -> Finding:  # noqa: ARG002
        """Look at the packages when there are any."""
        folder = repair.pointed_folder(TRAINING_POINTER)
        return self.examine(folder, machine) if folder is not None and folder.is_dir() else NOT_INSTALLED

    @abstractmethod
    def examine(self, folder: Path, machine: Machine) -> Finding:
        """Return what is found in an environment."""

    def fix(self, progress: Progress) -> None:
        """Mend the environment."""
        repair.mend(TRAINING_POINTER, progress)


class TorchBuild(PackageCheck):
    """PyTorch is the build of the profile."""

    id = "torch"
    title = "PyTorch"

    def examine(self, folder: Path, machine: Machine) -> Finding:  # noqa: ARG002
        """Compare version and CUDA with lock and profile."""
        build, profile = torch_build(folder), profile_of(folder)
        if build is None:
            return Finding(State.FAILED, "PyTorch is missing or can't be read.", "environment-damaged", fix=REPAIR)
        version, cuda = build
        wanted = CUDA_OF_PROFILE.get(profile)
        text = f"PyTorch {version}"
        if wanted and cuda is None:
            text = Message(
                "{text} can't use a GPU. The profile {profile} needs the build for CUDA {wanted}.",
                text=text,
                profile=profile,
                wanted=wanted,
            )
            return Finding(State.FAILED, text, "torch-cpu-build", fix=REPAIR)
        if numbers(version) < OLDEST_TORCH:
            text = Message("{text} is too old for the other libraries.", text=text)
            return Finding(State.FAILED, text, "torch-too-old-for-transformers", fix=REPAIR)
        pinned = next((pin for name, pin in scratch.pins(scratch.locks_of(folder)) if name == "torch"), None)
        if pinned and pinned.partition("+")[0] != version.partition("+")[0]:
            text = Message("{text} is installed instead of {pinned}.", text=text, pinned=pinned)
            return Finding(State.FAILED, text, "environment-damaged", fix=REPAIR)
        if wanted and cuda != wanted:
            text = Message(
                "{text} is built for CUDA {cuda}. The profile {profile} needs CUDA {wanted}.",
                text=text,
                cuda=cuda,
                profile=profile,
                wanted=wanted,
            )
            return Finding(State.FAILED, text, "environment-damaged", fix=REPAIR)
        return Finding(
            State.OK,
            Message(
                "{text}{built}, profile {profile}.",
                text=text,
                built=Message(" for CUDA {cuda}", cuda=cuda) if cuda else "",
                profile=profile,
            ),
        )


class Triton(PackageCheck):
    """Triton fits PyTorch, and only one of the two packages of that name is there."""

    id = "triton"
    title = "Triton"

    def examine(self, folder: Path, machine: Machine) -> Finding:
        """Compare Triton's version with PyTorch's."""
        packages, build = stores.installed_packages(folder), torch_build(folder)
        name = "triton-windows" if machine.system == "windows" else "triton"
        if {"triton", "triton-windows"} <= packages.keys():
            text = Message("triton and triton-windows are both installed and overwrite each other's files.")
            return Finding(State.FAILED, text, "triton-not-installed", fix=REPAIR)
        if profile_of(folder) == "cpu":
            return Finding(State.OK, "Not needed for training on the processor.")
        if name not in packages:
            return Finding(
                State.FAILED, Message("{name} is not installed.", name=name), "triton-not-installed", fix=REPAIR
            )
        wanted = TRITON_OF_TORCH.get(numbers(build[0])) if build else None
        if wanted and numbers(packages[name]) != wanted:
            expected = ".".join(str(number) for number in wanted)
            text = Message(
                "{name} {version} does not match PyTorch {torch}, which needs {expected}.",
                name=name,
                version=packages[name],
                torch=build[0] if build else "",
                expected=expected,
            )
            return Finding(State.FAILED, text, "triton-not-installed", fix=REPAIR)
        return Finding(State.OK, Message("{name} {version} matches PyTorch.", name=name, version=packages[name]))


class BitsAndBytes(PackageCheck):
    """The library of 4-bit weights has a build for PyTorch's CUDA, and no old fork is in its place."""

    id = "bitsandbytes"
    title = "4-bit library (bitsandbytes)"

    def examine(self, folder: Path, machine: Machine) -> Finding:  # noqa: ARG002
        """Look for the library's file of the CUDA version."""
        packages, build = stores.installed_packages(folder), torch_build(folder)
        forks = sorted(name for name in packages if name.startswith("bitsandbytes-"))
        code = "bnb-cuda-lib-missing"
        if forks:
            return Finding(
                State.FAILED,
                Message("{name} is an old fork that hides bitsandbytes.", name=forks[0]),
                code,
                fix=REPAIR,
            )
        if "bitsandbytes" not in packages:
            return Finding(State.FAILED, "bitsandbytes is not installed.", code, fix=REPAIR)
        major = build[1].partition(".")[0] if build and build[1] else None
        libraries = f"bitsandbytes/libbitsandbytes_cuda{major}*"
        if major and not any(list(site.glob(libraries)) for site in inventory.site_folders(folder)):
            return Finding(
                State.FAILED, Message("bitsandbytes has no library for CUDA {major}.", major=major), code, fix=REPAIR
            )
        return Finding(State.OK, f"{self.id} {packages[self.id]}.")


class Libraries(PackageCheck):
    """The packages are those of the lock, all of them and no others."""

    id = "libraries"
    title = "Libraries"

    def examine(self, folder: Path, machine: Machine) -> Finding:  # noqa: ARG002
        """Compare names and versions with the lock."""
        locks = scratch.locks_of(folder)
        recorded = scratch.manifest_of(folder).get("locks")
        if not locks or not isinstance(recorded, dict):
            return Finding(State.UNKNOWN, "This environment was built from an unknown lock file.")
        if any(recorded.get(lock.name) != files.sha256_file(lock) for lock in locks):
            fix = Fix("Install the packages of this version", "repair-environment", automatic=False, needs_network=True)
            return Finding(State.WARNING, "The packages belong to another version of Tunesmith.", fix=fix)
        packages, pinned = stores.installed_packages(folder), dict(scratch.pins(locks).keys())
        return self._compare(packages, pinned)

    def _compare(self, packages: dict[str, str], pinned: dict[str, str]) -> Finding:
        extra = sorted(packages.keys() - pinned.keys())
        differing = sorted(name for name, version in pinned.items() if packages.get(name) != version)
        lines = [
            Message("{name} {version} instead of {wanted}", name=name, version=packages[name], wanted=pinned[name])
            if name in packages
            else Message("{name} {wanted} is missing", name=name, wanted=pinned[name])
            for name in differing
        ]
        lines += [Message("{name} {version} does not belong here", name=name, version=packages[name]) for name in extra]
        if "flash-attn" in extra:
            text = Message(
                "flash-attn is installed. It must match PyTorch, CUDA and GPU exactly, and nothing here needs it."
            )
            return Finding(State.FAILED, text, "flash-attn-missing", "\n".join(lines), REPAIR)
        if not lines:
            return Finding(State.OK, Message("All {count} packages have the right version.", count=len(pinned)))
        code = next((CODES[name] for name in differing if name in CODES), "environment-damaged")
        text = Message("Wrong packages: {count}. First: {line}.", count=len(lines), line=lines[0])
        return Finding(State.FAILED, text, code, "\n".join(lines), REPAIR)
