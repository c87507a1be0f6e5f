"""Sets the Windows Subsystem for Linux up for training, one step at a time, each with the person's consent.

What is missing is looked up before every step, so the same command goes on after a restart. Inside, our own installer
builds the same locked environment; nothing of Linux is written on Windows' drives, and no driver is installed inside.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.machine import WslDistribution
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.kinds.setup import SETUP, SetupSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.wsl import client, listing
from tunesmith_core.wsl.guest import Guest, find_python
from tunesmith_setup.progress import EventProgress, Progress

DISTRIBUTION = "Ubuntu-24.04"
"""The distribution that is offered where there is none: its Python is one of ours."""

FOREIGN = ("docker-desktop", "rancher-desktop", "podman-machine")
"""Distributions that belong to other programs and hold no usable Linux."""

FEATURE_OFF = "0x8007019e"
"""What wsl.exe answers while the Windows feature that carries it is switched off."""

PACKAGES = ("python3", "python3-venv", "python3-pip", "python3-dev", "gcc", "libc6-dev")
"""What the environment inside needs: Python with its headers, and the compiler that Triton builds its launcher with."""

STEP_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is missing.

    Attributes:
        id: stable name.
        words: what will be done and why, for the person who is asked.
        command: what is run.
        elevated: whether Windows will ask for an administrator's consent.
        restart: whether the computer has to be restarted afterwards.
    """

    id: str
    words: str
    command: tuple[str, ...]
    elevated: bool = False
    restart: bool = False


Consent = Callable[[Step], bool]


def distributions() -> tuple[WslDistribution, ...] | None:
    """Return the distributions of this person, or None where the feature is switched off.

    Raises:
        EnvironmentProblem: `wsl-not-usable` when the subsystem can't work at all, with the reason.
    """
    answer = client.call("-l", "-v")
    if FEATURE_OFF in answer.text.lower():
        return None
    # An empty list is an error too: with a code of its own in current builds, without any in old ones.
    if answer.code != 0 and client.reason_of(answer) and "DEFAULT_DISTRO" not in answer.text:
        raise client.problem_of(answer)
    return tuple(one for one in listing.parse(answer.text) if not one.name.startswith(FOREIGN))


def chosen(found: tuple[WslDistribution, ...], wanted: str | None) -> WslDistribution | None:
    """Return the distribution to use: the wanted one, else the default, else the first."""
    if wanted:
        return next((one for one in found if one.name == wanted), None)
    return next((one for one in found if one.default), found[0] if found else None)


def has_compiler(name: str) -> bool:
    """Return whether a distribution can build Triton's launcher: a compiler and Python's headers."""
    question = "command -v gcc && ls /usr/include/python3*/Python.h"
    return Guest(name, "python3").run("sh", "-c", question).code == 0


def next_step(wanted: str | None) -> Step | None:
    """Return the first thing that is missing before our installer can run inside, or None.

    Raises:
        EnvironmentProblem: `wsl-not-usable` where Windows is too old to carry the subsystem.
    """
    client.program()
    found = distributions()
    if found is None:
        words = Message(
            "Install the Windows Subsystem for Linux. Windows asks for an administrator. Then restart the computer."
        )
        return Step("subsystem", words, ("wsl.exe", "--install", "--no-distribution"), elevated=True, restart=True)
    one = chosen(found, wanted)
    if one is None:
        name = wanted or DISTRIBUTION
        words = Message("Download the distribution {name} (about 0.6 GB) and install it for this user.", name=name)
        return Step("distribution", words, ("wsl.exe", "--install", "-d", name, "--no-launch"))
    if one.version != 2:
        words = Message(
            "Convert {name} to WSL 2, because WSL 1 can't use a GPU. This takes some minutes.", name=one.name
        )
        return Step("version", words, ("wsl.exe", "--set-version", one.name, "2"))
    if find_python(one.name) is None or not has_compiler(one.name):
        script = f"apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y {' '.join(PACKAGES)}"
        words = Message(
            "Install inside {name}, as administrator: {packages}.", name=one.name, packages=", ".join(PACKAGES)
        )
        inside = ("wsl.exe", "-d", one.name, "-u", "root", "--cd", "~", "--exec", "sh", "-c", script)
        return Step("packages", words, inside)
    return None


def prepare(wanted: str | None, consent: Consent, progress: Progress) -> Guest:
    """Do what is missing and return the distribution that our installer can run in.

    Args:
        wanted: name of a distribution, or None for the default one.
        consent: asks the person before each step.
        progress: takes what the person sees.

    Raises:
        EnvironmentProblem: `wsl-not-usable` when a step is refused, fails, changes nothing or needs a restart.
    """
    done: set[str] = set()
    while step := next_step(wanted):
        if step.id in done:
            raise EnvironmentProblem(
                "wsl-not-usable",
                "This step ended without an error but changed nothing: {step}",
                hint=Message("Run it in a terminal and read what it says: {command}", command=" ".join(step.command)),
                step=step.words,
            )
        if not consent(step):
            raise EnvironmentProblem(
                "wsl-not-usable",
                "This step was not confirmed: {step}",
                hint=Message(
                    "Do it yourself ({command}), or run the command again and agree.", command=" ".join(step.command)
                ),
                step=step.words,
            )
        with progress.phase(step.words):
            _run(step)
        done.add(step.id)
        if step.restart:
            raise EnvironmentProblem(
                "wsl-not-usable",
                "The computer must be restarted before the subsystem works.",
                hint="Restart, then run the same command again. It continues from here.",
            )
    one = chosen(distributions() or (), wanted)
    assert one is not None, "a step would be missing"
    return Guest(one.name, find_python(one.name) or "python3")


def _run(step: Step) -> None:
    for command in _attempts(step):
        answer = client.run(_elevated(command) if step.elevated else command, timeout_s=STEP_TIMEOUT_S)
        if answer.code == 0:
            return
    raise client.problem_of(answer)


def _attempts(step: Step) -> Iterator[list[str]]:
    """Yield the command of a step and, for a download, the way around a blocked Store."""
    command = [client.program(), *step.command[1:]]
    yield command
    if step.id == "distribution":
        yield [*command, "--web-download"]


def _elevated(command: list[str]) -> list[str]:
    """Return a command that lets Windows ask for an administrator's consent first."""
    if sys.platform == "win32":  # pragma: no cover
        quoted = ",".join(f"'{word}'" for word in command[1:])
        start = f"exit (Start-Process -Verb RunAs -Wait -PassThru '{command[0]}' -ArgumentList {quoted}).ExitCode"
        return ["powershell.exe", "-NoProfile", "-Command", start]
    return command


def provision(guest: Guest, profile: str | None, progress: Progress) -> None:
    """Build and prove the locked training environment inside with our own installer, and remember the distribution.

    Raises:
        EnvironmentProblem: why no GPU can be used inside, or `environment-build-failed`; the installer inside has said
            why on the lines above.
    """
    problem = guest.gpu_problem() if profile != "cpu" else None
    if problem:
        raise problem
    words = ("install", "--training-only", *(("--profile", profile) if profile else ()))
    if isinstance(progress, EventProgress):

        def command(operation: Operation) -> list[str]:
            folder = guest.path_of(str(operation.path))
            return guest.module_command("tunesmith_setup", *words, "--operation", folder)

        code = conduct(SETUP, SetupSpec(words), on_event=progress.repeat, command=command).exit_code
    else:
        child = guest.module_command("tunesmith_setup", *words)
        code = subprocess.run(child, stdin=subprocess.DEVNULL, check=False).returncode
    if code != 0:
        raise EnvironmentProblem(
            "environment-build-failed",
            "The training environment inside {distribution} could not be built (exit code {exit_code}).",
            distribution=guest.distribution,
            exit_code=code,
        )
    guest.save()
