"""Calls wsl.exe: bounded in time, decoded whatever its age, failures named.

wsl.exe writes its own texts as UTF-16 unless WSL_UTF8 is set, which old builds ignore; a Linux program's output passes
through as it is. Texts are translated, so only error codes are read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

TIMEOUT_S = 30.0

REASONS = {
    "0x80370102": (
        Message(
            "Virtualization is turned off in the firmware, or the Virtual Machine Platform is turned off in Windows."
        ),
        Message("Turn virtualization on in the firmware (BIOS/UEFI) settings, then restart."),
    ),
    "0x8007019e": (
        Message("The Windows feature for Linux is turned off."),
        Message("Install the subsystem on the Environment page, then restart."),
    ),
    "0x800701bc": (
        Message("The subsystem's Linux kernel is too old or missing."),
        Message("Run: wsl --update"),
    ),
    "0x80070241": (
        Message("Windows refused a file of the subsystem because of its signature."),
        Message("Run: wsl --update, then restart."),
    ),
    "WSL_E_DISTRO_NOT_FOUND": (
        Message("There is no Linux distribution of that name."),
        Message("Choose another distribution in the settings, or install one on the Environment page."),
    ),
    "WSL_E_DEFAULT_DISTRO_NOT_FOUND": (
        Message("No Linux distribution is installed."),
        Message("Install one on the Environment page."),
    ),
    "WSL_E_WSL2_NEEDED": (
        Message("The distribution uses WSL 1, which can't use a GPU."),
        Message("Run: wsl --set-version NAME 2"),
    ),
}
"""What wsl.exe's error codes mean: cause and next step. The texts beside them are translated, the codes never."""

_CODE = re.compile(r"0x[0-9a-fA-F]{8}|WSL_E_[A-Z0-9_]+")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call of wsl.exe gave.

    Attributes:
        code: its exit code.
        text: what was written, decoded, without carriage returns.
    """

    code: int
    text: str


def decode(output: bytes) -> str:
    """Return the text of wsl.exe's output, which is UTF-16 from wsl.exe itself and UTF-8 from Linux programs."""
    encoding = "utf-16-le" if b"\0" in output[:64] else "utf-8"
    text = output.decode(encoding, errors="replace")
    return text.replace("\ufeff", "").replace("\0", "").replace("\r", "")


def program() -> str:
    """Return the path of wsl.exe.

    Raises:
        EnvironmentProblem: `wsl-not-usable` when this computer has none.
    """
    system = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "wsl.exe"
    found = str(system) if sys.platform == "win32" and system.is_file() else shutil.which("wsl.exe")
    if found is None:
        raise TunesmithError(
            "wsl-not-usable",
            "This system has no wsl.exe: the Windows Subsystem for Linux comes with Windows 10 21H2 and Windows 11.",
            hint="Update Windows, or train natively.",
        )
    return found


def variables() -> dict[str, str]:
    """Return the variables of wsl.exe: nothing of a shell on this side reaches the other."""
    return {name: value for name, value in os.environ.items() if name.upper() != "WSLENV"} | {"WSL_UTF8": "1"}


def call(*arguments: str, timeout_s: float = TIMEOUT_S) -> Answer:
    """Call wsl.exe and return its answer, whatever its exit code.

    Raises:
        EnvironmentProblem: `wsl-not-usable` when it is missing, can't be started or does not answer in time.
    """
    return run([program(), *arguments], timeout_s=timeout_s)


def run(command: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Answer:
    """Run a command that calls wsl.exe in the end and return its answer. Raises EnvironmentProblem as `call`."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            env=variables(),
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TunesmithError(
            "wsl-not-usable",
            "wsl.exe did not answer within {timeout_s:g} s.",
            hint="Run wsl --shutdown, wait ten seconds, then try again.",
            timeout_s=timeout_s,
        ) from None
    except OSError as error:
        raise TunesmithError(
            "wsl-not-usable", "wsl.exe can't be started: {reason}.", reason=Message(str(error.strerror))
        ) from error
    return Answer(result.returncode, decode(result.stdout))


def checked(*arguments: str, timeout_s: float = TIMEOUT_S) -> str:
    """Call wsl.exe and return its text.

    Raises:
        EnvironmentProblem: `wsl-not-usable` as `call`, and with the meaning of its error when it failed.
    """
    answer = call(*arguments, timeout_s=timeout_s)
    if answer.code != 0:
        raise problem_of(answer)
    return answer.text


def reason_of(answer: Answer) -> tuple[str, str] | None:
    """Return cause and next step of the first known error code in an answer, or None."""
    known = {
        code.lower(): (Message("{cause} ({code})", cause=cause, code=code), step)
        for code, (cause, step) in REASONS.items()
    }
    return next((known[code.lower()] for code in _CODE.findall(answer.text) if code.lower() in known), None)


def problem_of(answer: Answer) -> TunesmithError:
    """Return the error that a failed call means."""
    cause, step = reason_of(answer) or (Message("wsl.exe ended with exit code {code}.", code=answer.code), None)
    return TunesmithError("wsl-not-usable", cause, hint=step, context=answer.text.strip())
