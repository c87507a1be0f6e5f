"""What is known about a computer: the facts that profiles, checks, diagnosis and the window decide on.

Pure data. `tunesmith_setup.probe` fills it; a fact that could not be found out in time is None, which means "unknown"
and never "absent" or "broken". Sizes are bytes.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Self

from tunesmith_core.json_values import read


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """A process that holds GPU memory.

    Attributes:
        used_bytes: None where the driver does not tell (Windows' display model never does).
    """

    pid: int
    name: str | None = None
    used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One NVIDIA GPU.

    Attributes:
        index: as nvidia-smi counts.
        compute_capability: such as (8, 6).
        processes: who holds its memory.
    """

    index: int
    name: str
    compute_capability: tuple[int, int] | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """The NVIDIA driver.

    Attributes:
        version: such as "552.44"; empty when it does not work and nothing tells.
        cuda_version: newest CUDA that it serves, such as (12, 4).
        source: "nvml", "nvidia-smi", "registry" (of Windows) or "kernel" (its module's version file).
        problem: what it said when it is installed and does not work, None when it works.
    """

    version: str
    cuda_version: tuple[int, int] | None = None
    source: str = "nvml"
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A drive or mount point.

    Attributes:
        kind: "fixed", "removable", "network" or "unknown".
    """

    path: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    kind: str = "unknown"
    file_system: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonCandidate:
    """An interpreter that was found.

    Attributes:
        problem: why it can't carry our environments, None when it can.
    """

    executable: str
    version: tuple[int, int, int] | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WslDistribution:
    """A distribution of the Windows Subsystem for Linux; `version` is 1 or 2."""

    name: str
    version: int
    running: bool = False
    default: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Wsl:
    """The Windows Subsystem for Linux.

    Attributes:
        state: "ready" (a distribution of version 2), "no-distribution", "version-1", "not-installed" or "failed".
        detail: what wsl.exe answered when it failed.
    """

    state: str
    distributions: tuple[WslDistribution, ...] = ()
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """All facts about a computer; None is unknown, an empty tuple is known to be none.

    Attributes:
        system: "windows" or "linux".
        system_name: such as "Windows 11 Pro 23H2" or "Ubuntu 24.04".
        system_build: Windows build number or kernel release.
        language: of the system, such as "zh_CN".
        is_wsl: whether this very system runs inside the Windows Subsystem for Linux.
        gpus: the NVIDIA GPUs.
        other_gpus: names of GPUs of other makers.
        driver: of NVIDIA; None where there is none, or unknown when `unknown` has "nvidia".
        commit_limit_bytes, commit_used_bytes: main memory plus page file (Windows: the commit charge).
        page_file_bytes: size of page file or swap.
        vc_runtime: version of the Microsoft Visual C++ runtime (x64), (0, 0) when it is missing.
        long_paths: whether Windows allows paths above 260 characters.
        leaks: variables of the person's shell that lead libraries astray, with their values.
        proxies: proxy variables and the system's proxy, without credentials.
        tls: what speaks for an intercepted TLS connection, such as a variable that names a certificate file.
        security: names of antivirus products and application control that were found.
        unknown: names of the probes that gave no answer in time.
    """

    system: str
    system_name: str | None = None
    system_build: str | None = None
    language: str | None = None
    is_wsl: bool | None = None
    cpu_name: str | None = None
    cpu_threads: int | None = None
    ram_total_bytes: int | None = None
    ram_free_bytes: int | None = None
    commit_limit_bytes: int | None = None
    commit_used_bytes: int | None = None
    page_file_bytes: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    other_gpus: tuple[str, ...] | None = None
    driver: Driver | None = None
    disks: tuple[Disk, ...] | None = None
    vc_runtime: tuple[int, int] | None = None
    long_paths: bool | None = None
    pythons: tuple[PythonCandidate, ...] | None = None
    wsl: Wsl | None = None
    leaks: dict[str, str] | None = None
    proxies: dict[str, str] | None = None
    tls: dict[str, str] | None = None
    security: tuple[str, ...] | None = None
    unknown: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the facts as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:  # Any: JSON values
        """Read what `to_dict` wrote; fields of a newer version are ignored.

        Raises:
            ValueError: when the data are not facts about a machine.
        """
        try:
            return typing.cast(Self, read(cls, data))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"these are not facts about a machine: {error}") from error
