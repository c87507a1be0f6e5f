"""The Windows Subsystem for Linux: whether it is there, and which distributions.

wsl.exe is asked first. Where it does not answer in time, the registry says which distributions are installed.
"""

from __future__ import annotations

import re
from typing import Any

from tunesmith_core.machine import Wsl, WslDistribution
from tunesmith_core.wsl.client import decode
from tunesmith_core.wsl.listing import parse
from tunesmith_setup.probe.computer import Computer

DISTRIBUTIONS = "HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Lxss"
NOT_FOR_PEOPLE = ("docker-desktop", "rancher-desktop", "podman-")
"""Beginnings of the names of distributions that other programs own; nothing can be installed in them."""

_NO_DISTRIBUTION = re.compile(r"WSL_E_DEFAULT_DISTRO_NOT_FOUND|wslstore|--list --online|-l -o\b", re.IGNORECASE)
_NOT_INSTALLED = re.compile(r"WSL_E_WSL_OPTIONAL_COMPONENT_REQUIRED|0x8007019e|wsl(\.exe)? --install", re.IGNORECASE)


def facts(computer: Computer) -> dict[str, Any]:
    """Return `wsl`; None on Linux, where the question has no meaning.

    Raises:
        TimeoutError: when wsl.exe does not answer and the registry knows no distribution.
    """
    return {"wsl": _windows(computer) if computer.system == "windows" else None}


def _windows(computer: Computer) -> Wsl:
    program = computer.variables.get("SYSTEMROOT", "C:\\Windows") + "\\System32\\wsl.exe"
    if not computer.exists(program):
        return Wsl(state="not-installed")
    listing = computer.run([program, "-l", "-v"])
    if listing is None:
        registered = tuple(_registered(computer))
        if not registered:
            raise TimeoutError("wsl.exe does not answer")
        return _with(registered)
    distributions = parse(decode(listing.data))
    if distributions:
        return _with(distributions)
    text = decode(listing.data).strip()
    if listing.code == 0 or _NO_DISTRIBUTION.search(text):
        return Wsl(state="no-distribution")
    if _NOT_INSTALLED.search(text):
        return Wsl(state="not-installed")
    status = computer.run([program, "--status"])
    told = decode(status.data).strip() if status else ""
    # An old build without the feature answers every option with its help text, which has no error code.
    return Wsl(state="failed", detail=f"{text}\n{told}".strip() or f"wsl.exe ended with code {listing.code}")


def _with(distributions: tuple[WslDistribution, ...]) -> Wsl:
    ours = [one for one in distributions if not one.name.lower().startswith(NOT_FOR_PEOPLE)]
    if not ours:
        return Wsl(state="no-distribution", distributions=distributions)
    state = "ready" if any(one.version == 2 for one in ours) else "version-1"
    return Wsl(state=state, distributions=distributions)


def _registered(computer: Computer) -> list[WslDistribution]:
    default = computer.registry(DISTRIBUTIONS).get("DefaultDistribution")
    found = []
    for key in computer.registry_keys(DISTRIBUTIONS):
        values = computer.registry(f"{DISTRIBUTIONS}\\{key}")
        name, version = values.get("DistributionName"), values.get("Version", 1)
        if isinstance(name, str) and isinstance(version, int):
            found.append(WslDistribution(name=name, version=version, default=key == default))
    return found
