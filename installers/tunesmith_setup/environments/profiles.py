"""Profiles are data: which build of PyTorch a computer gets and why, decided by the driver and every NVIDIA GPU.

The choice is a pure function of the facts in `Machine`. CUDA_VISIBLE_DEVICES plays no part: an environment serves the
computer, not one shell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunesmith_core.machine import Gpu, Machine
from tunesmith_core.messages import Message, joined

Version = tuple[int, ...]

OLDEST_GPU = (6, 0)
"""First compute capability that some profile serves."""
BLACKWELL = (10, 0)
"""First compute capability that CUDA 12.4 can't serve."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A training environment.

    Attributes:
        name: also the first part of its lock's name.
        title: what people call it.
        installed_bytes: expected size of the environment.
        oldest_gpu: lowest compute capability that its libraries serve, None where it computes on the processor.
        oldest_triton_gpu: lowest compute capability that runs our Triton kernels; others run their PyTorch twins.
    """

    name: str
    title: str
    installed_bytes: int
    oldest_gpu: tuple[int, int] | None = None
    oldest_triton_gpu: tuple[int, int] = (0, 0)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("cpu", "CPU", 5_700_000_000),
        Profile("cu124", "CUDA 12.4", 5_700_000_000, OLDEST_GPU, (7, 5)),
        # Triton 3.6 compiles for 8.0 and newer; PyTorch's CUDA 12.8 libraries begin with 7.0.
        Profile("cu128", "CUDA 12.8", 7_600_000_000, (7, 0), (8, 0)),
    )
}

DRIVER_FLOORS: dict[str, tuple[Version, Version]] = {"linux": ((525, 60), (570, 26)), "windows": ((528, 33), (570, 65))}
"""Oldest driver of any CUDA 12 build, and of one that must serve Blackwell (CUDA's release notes)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What a person should know about a choice; `code` is of the catalogue of error codes."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The profile for a computer.

    Attributes:
        sentence: what it was chosen for, such as "RTX 3060, driver 552: CUDA 12.4".
        warnings: what will work less well, or what to know.
        problem: code of what must be repaired before the GPU can be used at all; the person may agree to "cpu" instead.
    """

    profile: Profile
    sentence: str
    warnings: tuple[Notice, ...] = ()
    problem: str | None = None


def choose(machine: Machine, asked: str | None = None) -> Choice:
    """Return the profile for a computer.

    Args:
        machine: the facts; unknown ones never count as a fault.
        asked: name of the profile that the person wants. Then nothing is a problem, and everything is said.
    """
    if asked:
        return _asked(machine, PROFILES[asked])
    gpus = _usable(machine)
    if not gpus:
        return _without_gpu(machine)
    profile = PROFILES["cu128" if any(_capability(gpu) >= BLACKWELL for gpu in gpus) else "cu124"]
    faults = _driver_faults(machine, profile)
    if faults:
        return Choice(
            profile,
            Message("{subject}: {title}", subject=_subject(machine), title=faults[0].text),
            faults,
            faults[0].code,
        )
    return Choice(
        profile,
        Message("{subject}: {title}", subject=_subject(machine), title=profile.title),
        _warnings(machine, profile),
    )


def short_name(gpu: Gpu) -> str:
    """Return a GPU's name without what every name has, such as "RTX 3060 Laptop"."""
    return re.sub(r"\b(NVIDIA|GeForce|Tesla|Quadro(?= RTX)|GPU)\b", "", gpu.name).strip().replace("  ", " ") or gpu.name


def driver_version(text: str) -> Version:
    """Return a driver's version as numbers; () when the text has none."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _capability(gpu: Gpu) -> tuple[int, int]:
    """Return a GPU's compute capability; an unknown one counts as the commonest, which the default profile serves."""
    return gpu.compute_capability or (8, 6)


def _usable(machine: Machine) -> list[Gpu]:
    """Return the GPUs that some profile serves."""
    return [gpu for gpu in machine.gpus or () if _capability(gpu) >= OLDEST_GPU]


def _names(gpus: tuple[Gpu, ...]) -> str:
    names = [short_name(gpu) for gpu in gpus]
    counted = [f"{names.count(name)} x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return " and ".join([", ".join(counted[:-1]), counted[-1]] if counted[1:] else counted)


def _subject(machine: Machine) -> str:
    """Return what a choice was made for: the GPUs and the driver's branch."""
    names = _names(machine.gpus or ())
    version = machine.driver.version.split(".")[0] if machine.driver else ""
    return f"{names}, driver {version}" if version else names


def _without_gpu(machine: Machine) -> Choice:
    profile = PROFILES["cpu"]
    if machine.gpus:
        text = Message("{names} is too old for PyTorch, which needs a GTX 1000 or newer.", names=_names(machine.gpus))
        notice = Notice("no-kernel-image-for-arch", text)
        return Choice(profile, Message("{names} is too old: CPU", names=_names(machine.gpus)), (notice,))
    if machine.gpus is None:
        notice = Notice("driver-missing", "Looking for NVIDIA GPUs took too long.")
        return Choice(profile, Message("NVIDIA GPUs did not answer: CPU"), (notice,))
    others = f" ({', '.join(machine.other_gpus)})" if machine.other_gpus else ""
    return Choice(profile, Message("No NVIDIA GPU{others}: CPU", others=others))


def _driver_faults(machine: Machine, profile: Profile) -> tuple[Notice, ...]:
    """Return what keeps the driver from serving a profile, the evidence behind it; an unknown version is no fault."""
    driver = machine.driver
    if driver is None:
        missing = Notice(
            "driver-missing", Message("{title} needs the NVIDIA driver, which is missing", title=profile.title)
        )
        return () if "nvidia" in machine.unknown else (missing,)
    if driver.problem:
        return (Notice("driver-missing", "the NVIDIA driver does not answer"), Notice("driver-missing", driver.problem))
    blackwell = any(_capability(gpu) >= BLACKWELL for gpu in machine.gpus or ())
    # Inside the Windows Subsystem for Linux the driver is that of Windows.
    floor = DRIVER_FLOORS["windows" if machine.is_wsl else machine.system][blackwell]
    version = driver_version(driver.version)
    if not version or version >= floor:
        return ()
    wanted = ".".join(str(number) for number in floor)
    return (
        Notice("driver-too-old", Message("{title} needs driver {wanted} or newer", title=profile.title, wanted=wanted)),
    )


def _warnings(machine: Machine, profile: Profile) -> tuple[Notice, ...]:
    """Return what will not work, or work less well, with a profile that the driver serves."""
    assert profile.oldest_gpu is not None, "on the processor nothing is asked of a GPU"
    notices, oldest = [], profile.oldest_gpu
    gpus = machine.gpus or ()
    too_new = tuple(gpu for gpu in gpus if profile.name == "cu124" and _capability(gpu) >= BLACKWELL)
    too_old = tuple(gpu for gpu in gpus if _capability(gpu) < oldest)
    plain = tuple(gpu for gpu in gpus if gpu not in too_old and _capability(gpu) < profile.oldest_triton_gpu)
    if too_new:
        text = Message("{title} can't use {names}. CUDA 12.8 can.", title=profile.title, names=_names(too_new))
        notices.append(Notice("no-kernel-image-for-arch", text))
    if too_old:
        serves = profile.name == "cu128" and any(_capability(gpu) >= OLDEST_GPU for gpu in too_old)
        text = Message("{title} can't use {names}.", title=profile.title, names=_names(too_old))
        other = Message("Choose CUDA 12.4 to train on it. The newer GPU can't be used then.")
        notices.append(Notice("no-kernel-image-for-arch", joined([text, other]) if serves else text))
    if plain:
        text = Message("No Triton kernels for {names}. Training needs more memory and time there.", names=_names(plain))
        notices.append(Notice("triton-arch-unsupported", text))
    return tuple(notices)


def _asked(machine: Machine, profile: Profile) -> Choice:
    """Return a profile that the person chose, with everything that speaks against it."""
    subject = _subject(machine) if machine.gpus else Message("No NVIDIA GPU")
    sentence = Message("{subject}: {title}, as requested", subject=subject, title=profile.title)
    if profile.oldest_gpu is None:
        return Choice(profile, sentence)
    if not machine.gpus:
        return Choice(profile, sentence, (Notice("driver-missing", "No NVIDIA GPU was found for this build."),))
    return Choice(profile, sentence, _driver_faults(machine, profile) + _warnings(machine, profile))
