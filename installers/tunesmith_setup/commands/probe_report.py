"""The facts about a computer as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from tunesmith_core.machine import Disk, Gpu, GpuProcess, Machine, PythonCandidate, Wsl
from tunesmith_setup.environments.profiles import Choice
from tunesmith_setup.progress import size_text

LABEL_COLUMNS = 14


def lines(machine: Machine, choice: Choice) -> list[str]:
    """Return a table of two columns; what is unknown is left out and named in the end."""
    rows = [*_system(machine), *_gpus(machine), *_storage(machine), *_programs(machine), *_surroundings(machine)]
    rows.append(("Profile", choice.sentence))
    rows += [("", f"{warning.text} [{warning.code}]") for warning in choice.warnings]
    if machine.unknown:
        rows.append(("Unknown", f"{', '.join(machine.unknown)}: no answer in time"))
    return [f"{label:<{LABEL_COLUMNS}}{text}".rstrip() for label, text in rows]


Row = tuple[str, str]


def _system(machine: Machine) -> Iterator[Row]:
    name = machine.system_name or machine.system.capitalize()
    build = f" ({machine.system_build})" if machine.system_build else ""
    inside = ", inside the Windows Subsystem for Linux" if machine.is_wsl else ""
    language = f", {machine.language}" if machine.language else ""
    yield "System", f"{name}{build}{language}{inside}"
    if machine.cpu_name:
        yield "Processor", f"{machine.cpu_name}, {machine.cpu_threads or '?'} threads"
    if machine.ram_total_bytes is not None:
        yield "Memory", f"{_size(machine.ram_total_bytes)}, {_size(machine.ram_free_bytes)} free"
    if machine.commit_limit_bytes is not None:
        used, limit = _size(machine.commit_used_bytes), _size(machine.commit_limit_bytes)
        kind = "page file" if machine.system == "windows" else "swap"
        yield "", f"{_size(machine.page_file_bytes)} {kind}; {used} of {limit} promised to programs"


def _gpus(machine: Machine) -> Iterator[Row]:
    for gpu in machine.gpus or ():
        yield f"GPU {gpu.index}", _gpu(gpu)
        yield from (("", f"memory held by {_holder(process)}") for process in gpu.processes or ())
    if machine.gpus == ():
        yield "GPU", "no NVIDIA GPU"
    if machine.driver:
        cuda = machine.driver.cuda_version
        serves = f", serves CUDA up to {cuda[0]}.{cuda[1]}" if cuda else ""
        problem = f"; it does not work: {machine.driver.problem}" if machine.driver.problem else ""
        yield "Driver", f"{machine.driver.version}{serves} (told by {machine.driver.source}){problem}"
    yield from (("Other GPU", name) for name in machine.other_gpus or ())


def _gpu(gpu: Gpu) -> str:
    parts = [gpu.name]
    if gpu.compute_capability:
        parts.append("compute capability {}.{}".format(*gpu.compute_capability))
    if gpu.total_bytes is not None:
        parts.append(f"{_size(gpu.total_bytes)}, {_size(gpu.free_bytes)} free")
    return ", ".join(parts)


def _holder(process: GpuProcess) -> str:
    used = f": {_size(process.used_bytes)}" if process.used_bytes is not None else ""
    return f"{process.name or 'a process'} ({process.pid}){used}"


def _storage(machine: Machine) -> Iterator[Row]:
    yield from (("Disk", _disk(disk)) for disk in machine.disks or ())
    if machine.long_paths is not None:
        yield "Long paths", "allowed" if machine.long_paths else "not allowed (260 characters at most)"


def _disk(disk: Disk) -> str:
    room = f", {_size(disk.free_bytes)} of {_size(disk.total_bytes)} free" if disk.total_bytes is not None else ""
    return f"{disk.path} {disk.kind} {disk.file_system or ''}".rstrip() + room


def _programs(machine: Machine) -> Iterator[Row]:
    yield from _pythons(machine.pythons or ())
    if machine.vc_runtime is not None:
        missing = machine.vc_runtime == (0, 0)
        yield "VC++ runtime", "missing" if missing else "{}.{}".format(*machine.vc_runtime)
    if machine.wsl is not None:
        yield "WSL", _wsl(machine.wsl)


def _pythons(pythons: tuple[PythonCandidate, ...]) -> Iterator[Row]:
    """Return those that serve, and the others by their reason: shims come by the dozen."""
    for python in pythons:
        if python.problem is None and python.version:
            yield "Python", "{}.{}.{} ".format(*python.version) + python.executable
    problems = [python.problem for python in pythons if python.problem]
    for problem in dict.fromkeys(problems):
        first = next(python.executable for python in pythons if python.problem == problem)
        more = f" and {problems.count(problem) - 1} more" if problems.count(problem) > 1 else ""
        yield "", f"not used: {first}{more} ({problem})"


def _wsl(wsl: Wsl) -> str:
    names = [f"{one.name} (version {one.version}{', running' if one.running else ''})" for one in wsl.distributions]
    return ": ".join([wsl.state, ", ".join(names) or wsl.detail or ""]).removesuffix(": ")


def _surroundings(machine: Machine) -> Iterator[Row]:
    for label, values in (("Shell", machine.leaks), ("Proxy", machine.proxies), ("TLS", machine.tls)):
        yield from ((label, f"{name}={value}") for name, value in (values or {}).items())
    if machine.security:
        yield "Security", ", ".join(machine.security)


def _size(num_bytes: int | None) -> str:
    return "?" if num_bytes is None else size_text(num_bytes)
