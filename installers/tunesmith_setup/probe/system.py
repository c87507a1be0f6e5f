"""The operating system, the processor, and two settings of Windows that training depends on."""

from __future__ import annotations

import re
from typing import Any

from tunesmith_setup.probe.computer import Computer

WINDOWS = "HKLM\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion"
PROCESSORS = "HKLM\\HARDWARE\\DESCRIPTION\\System\\CentralProcessor"
LANGUAGE = "HKCU\\Control Panel\\International"
FILE_SYSTEM = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem"
VC_RUNTIMES = (
    "HKLM\\SOFTWARE\\Microsoft\\VisualStudio\\14.0\\VC\\Runtimes\\x64",
    "HKLM\\SOFTWARE\\WOW6432Node\\Microsoft\\VisualStudio\\14.0\\VC\\Runtimes\\x64",
)
FIRST_BUILD_OF_WINDOWS_11 = 22000


def facts(computer: Computer) -> dict[str, Any]:
    """Return the fields about system and processor; on Windows `vc_runtime` and `long_paths` too."""
    return _windows(computer) if computer.system == "windows" else _linux(computer)


def _windows(computer: Computer) -> dict[str, Any]:
    values = computer.registry(WINDOWS)
    build = str(values.get("CurrentBuild", ""))
    name = str(values.get("ProductName", "Windows"))
    if build.isdecimal() and int(build) >= FIRST_BUILD_OF_WINDOWS_11:
        # Windows 11 still calls itself 10 here.
        name = name.replace("Windows 10", "Windows 11")
    release = values.get("DisplayVersion") or values.get("ReleaseId")
    processors = computer.registry_keys(PROCESSORS)
    processor = computer.registry(f"{PROCESSORS}\\0").get("ProcessorNameString")
    language = computer.registry(LANGUAGE).get("LocaleName")
    return {
        "system_name": f"{name} {release}" if release else name,
        "system_build": f"{build}.{values['UBR']}" if "UBR" in values else build or None,
        "language": str(language).replace("-", "_") if language else None,
        "is_wsl": False,
        "cpu_name": _one_spaced(str(processor)) if processor else None,
        "cpu_threads": len(processors) or None,
        "vc_runtime": _vc_runtime(computer),
        "long_paths": computer.registry(FILE_SYSTEM).get("LongPathsEnabled") == 1,
    }


def _vc_runtime(computer: Computer) -> tuple[int, int]:
    """Return the newest registered version of the Visual C++ runtime, (0, 0) when there is none."""
    versions = [(0, 0)]
    for key in VC_RUNTIMES:
        values = computer.registry(key)
        major, minor = values.get("Major"), values.get("Minor")
        if values.get("Installed") == 1 and isinstance(major, int) and isinstance(minor, int):
            versions.append((major, minor))
    return max(versions)


def _linux(computer: Computer) -> dict[str, Any]:
    release = computer.read("/proc/sys/kernel/osrelease")
    processors = computer.read("/proc/cpuinfo") or ""
    names = re.findall(r"^model name\s*:\s*(.+)$", processors, re.MULTILINE)
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', computer.read("/etc/os-release") or "", re.MULTILINE)
    variables = (computer.variables.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    language = next((value for value in variables if value), "").partition(".")[0]
    return {
        "system_name": name[1] if name else None,
        "system_build": release.strip() if release else None,
        "language": language or None,
        # Microsoft's kernel says so in its release, in both versions of the subsystem.
        "is_wsl": "microsoft" in release.lower() if release else None,
        "cpu_name": _one_spaced(names[0]) if names else None,
        "cpu_threads": len(re.findall(r"^processor\s*:", processors, re.MULTILINE)) or None,
    }


def _one_spaced(text: str) -> str:
    return " ".join(text.split())
