"""The facts about a computer as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from tunesmith_core.machine import Disk, Gpu, GpuProcess, Machine, PythonCandidate, Wsl
from tunesmith_core.messages import Message, joined, said
from tunesmith_setup.environments.profiles import Choice
from tunesmith_setup.progress import size_text

LABEL_COLUMNS = 14


def lines(machine: Machine, choice: Choice) -> list[str]:
    """Return a table of two columns; what is unknown is left out and named in the end."""
    rows = [*_system(machine), *_gpus(machine), *_storage(machine), *_programs(machine), *_surroundings(machine)]
    rows.append((Message("Profile"), choice.sentence))
    rows += [("", Message("{text} [{code}]", text=warning.text, code=warning.code)) for warning in choice.warnings]
    if machine.unknown:
        rows.append((Message("Unknown"), Message("{names}: no answer in time", names=", ".join(machine.unknown))))
    return [f"{said(label):<{LABEL_COLUMNS}}{said(text)}".rstrip() for label, text in rows]


Row = tuple[str, str]


def _system(machine: Machine) -> Iterator[Row]:
    name = machine.system_name or machine.system.capitalize()
    build = f" ({machine.system_build})" if machine.system_build else ""
    inside = Message(", inside the Windows Subsystem for Linux") if machine.is_wsl else ""
    language = f", {machine.language}" if machine.language else ""
    yield Message("System"), Message("{name}{inside}", name=f"{name}{build}{language}", inside=inside)
    if machine.cpu_name:
        yield (
            Message("Processor"),
            Message("{name}, {count} threads", name=machine.cpu_name, count=machine.cpu_threads or "?"),
        )
    if machine.ram_total_bytes is not None:
        yield Message("Memory"), _free(machine.ram_total_bytes, machine.ram_free_bytes)
    if machine.commit_limit_bytes is not None:
        used, limit = _size(machine.commit_used_bytes), _size(machine.commit_limit_bytes)
        kind = Message("Page file") if machine.system == "windows" else Message("Swap")
        size = _size(machine.page_file_bytes)
        yield kind, Message("{size}, programs have reserved {used} of {limit}", size=size, used=used, limit=limit)


def _gpus(machine: Machine) -> Iterator[Row]:
    for gpu in machine.gpus or ():
        yield f"GPU {gpu.index}", _gpu(gpu)
        yield from (
            ("", Message("memory used by {program}", program=_holder(process))) for process in gpu.processes or ()
        )
    if machine.gpus == ():
        yield "GPU", Message("No NVIDIA GPU")
    if machine.driver:
        cuda = machine.driver.cuda_version
        serves = Message(", supports CUDA up to {version}", version="{}.{}".format(*cuda)) if cuda else ""
        problem = (
            Message(", does not work: {problem}", problem=machine.driver.problem) if machine.driver.problem else ""
        )
        yield Message("Driver"), joined([machine.driver.version, serves, f" ({machine.driver.source})", problem], "")
    yield from ((Message("Other GPU"), name) for name in machine.other_gpus or ())


def _gpu(gpu: Gpu) -> Message:
    parts = [gpu.name]
    if gpu.compute_capability:
        parts.append(Message("compute capability {version}", version="{}.{}".format(*gpu.compute_capability)))
    if gpu.total_bytes is not None:
        parts.append(_free(gpu.total_bytes, gpu.free_bytes))
    return joined(parts, ", ")


def _holder(process: GpuProcess) -> str:
    used = f": {_size(process.used_bytes)}" if process.used_bytes is not None else ""
    return f"{process.name or 'PID'} ({process.pid}){used}"


def _storage(machine: Machine) -> Iterator[Row]:
    yield from ((Message("Disk"), _disk(disk)) for disk in machine.disks or ())
    if machine.long_paths is not None:
        yield (
            "Long paths",
            Message("allowed") if machine.long_paths else Message("not allowed (260 characters at most)"),
        )


def _disk(disk: Disk) -> str:
    name = f"{disk.path} {disk.kind} {disk.file_system or ''}".rstrip()
    return joined([name, _free(disk.total_bytes, disk.free_bytes)], ", ") if disk.total_bytes is not None else name


def _programs(machine: Machine) -> Iterator[Row]:
    yield from _pythons(machine.pythons or ())
    if machine.vc_runtime is not None:
        missing = machine.vc_runtime == (0, 0)
        yield "VC++ runtime", Message("missing") if missing else "{}.{}".format(*machine.vc_runtime)
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
        count = problems.count(problem)
        yield "", Message("not used ({count}): {path} ({reason})", count=count, path=first, reason=Message(problem))


def _wsl(wsl: Wsl) -> str:
    names = [f"{one.name} (version {one.version}{', running' if one.running else ''})" for one in wsl.distributions]
    return ": ".join([wsl.state, ", ".join(names) or wsl.detail or ""]).removesuffix(": ")


def _surroundings(machine: Machine) -> Iterator[Row]:
    for label, values in ((Message("Shell"), machine.leaks), (Message("Proxy"), machine.proxies), ("TLS", machine.tls)):
        yield from ((label, f"{name}={value}") for name, value in (values or {}).items())
    if machine.security:
        yield Message("Security"), ", ".join(machine.security)


def _free(total_bytes: int | None, free_bytes: int | None) -> Message:
    return Message("{total}, {free} free", total=_size(total_bytes), free=_size(free_bytes))


def _size(num_bytes: int | None) -> str:
    return "?" if num_bytes is None else size_text(num_bytes)
