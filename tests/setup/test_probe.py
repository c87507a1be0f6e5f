"""The probe as a whole: this computer, subjects that hang or fail, what is unknown, and what a person is shown."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.setup.recorded import Recorded, load
from tunesmith_core import bounded, nvml
from tunesmith_core.machine import Disk, Driver, Gpu, GpuProcess, Machine, PythonCandidate, Wsl, WslDistribution
from tunesmith_setup import __main__ as command_line
from tunesmith_setup import probe
from tunesmith_setup.commands import probe_report as report
from tunesmith_setup.environments import profiles
from tunesmith_setup.probe import interpreters, memory, network, nvidia, system, windows_calls, wsl
from tunesmith_setup.probe.computer import Computer, Space

GIB = 1024**3


def changed(name: str, **changes: Any) -> Recorded:
    """A recorded computer with other answers from some sources."""
    return Recorded(load(name) | changes)


def test_this_very_computer_tells_about_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "places", lambda _: [sys.executable])
    machine = probe.machine(timeout_s=60)
    assert machine.system == ("windows" if sys.platform == "win32" else "linux")
    assert machine.unknown == ()
    assert machine.cpu_threads
    assert machine.ram_total_bytes
    assert machine.disks
    assert machine.pythons
    assert machine.pythons[0].version == sys.version_info[:3]


def test_a_subject_that_hangs_or_fails_is_unknown_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(_: Computer) -> dict[str, Any]:
        release.wait(60)
        return {"gpus": ()}

    def fail(_: Computer) -> dict[str, Any]:
        raise ValueError("a surprise")

    good = {"memory": lambda _: {"ram_total_bytes": 7}}
    monkeypatch.setattr(probe, "SUBJECTS", {"nvidia": hang, "disks": fail} | good)
    try:
        machine = probe.machine(timeout_s=0.3)
    finally:
        release.set()
    assert machine.unknown == ("nvidia", "disks")
    assert (machine.gpus, machine.disks, machine.ram_total_bytes) == (None, None, 7)


def test_a_computer_that_tells_nothing_is_unknown_not_broken() -> None:
    empty = {"system": "linux", "python": "/usr/bin/python3", "variables": {"PATH": ""}}
    machine = probe.machine(computer=Recorded(empty))
    assert (machine.system_name, machine.is_wsl, machine.cpu_threads, machine.ram_total_bytes) == (None,) * 4
    assert (machine.gpus, machine.disks, machine.pythons) == ((), (), ())
    windows = empty | {"system": "windows", "python": "python.exe", "drives": []}
    machine = probe.machine(computer=Recorded(windows))
    assert (machine.system_name, machine.system_build, machine.language, machine.commit_limit_bytes) == (
        "Windows",
        None,
        None,
        None,
    )
    assert machine.vc_runtime == (0, 0)


def test_wsl_that_neither_answers_nor_is_registered_is_unknown() -> None:
    recording = load("windows-intel-only")
    computer = changed("windows-intel-only", programs=recording["programs"] | {"wsl.exe -l -v": None})
    machine = probe.machine(computer=computer)
    assert machine.wsl is None
    assert machine.unknown == ("wsl",)


def wsl_after(listing: dict[str, Any], status: dict[str, Any] | None = None) -> Wsl | None:
    programs = {"wsl.exe -l -v": listing, "wsl.exe --status": status}
    return probe.machine(computer=changed("windows-intel-only", programs=programs)).wsl


def test_wsl_with_nothing_but_what_docker_brought_is_not_ready() -> None:
    text = "  NAME              STATE           VERSION\r\n* docker-desktop    Running         2\r\n"
    found = wsl_after({"code": 0, "utf16": text})
    assert found is not None
    assert found.state == "no-distribution"
    assert [one.name for one in found.distributions] == ["docker-desktop"]


def test_wsl_that_fails_without_a_word_says_its_exit_code() -> None:
    for code in (1, 7):
        assert wsl_after({"code": code, "text": ""}) == Wsl(state="failed", detail=f"wsl.exe ended with code {code}")
    assert wsl_after({"code": 0, "text": ""}) == Wsl(state="no-distribution")


def test_gpus_are_told_by_the_bus_when_nvidia_smi_answers_half() -> None:
    """The heading tells the driver, and then every question is refused."""
    recording = load("linux-nouveau-gt-710")
    heading = {"code": 0, "text": "| NVIDIA-SMI 550.120  Driver Version: 550.120  CUDA Version: 12.4 |\n"}
    programs = {"nvidia-smi": heading, "nvidia-smi --query-gpu": {"code": 1, "text": ""}}
    machine = probe.machine(computer=changed("linux-nouveau-gt-710", programs=recording["programs"] | programs))
    assert machine.driver == Driver(version="550.120", cuda_version=(12, 4), source="nvidia-smi")
    assert [gpu.name for gpu in machine.gpus or ()] == ["NVIDIA GeForce GT 710"]


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 5060 Ti", (12, 0)),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0)),
        ("NVIDIA GB200", (10, 0)),
        ("NVIDIA H200 NVL", (9, 0)),
        ("NVIDIA RTX 5000 Ada Generation", (8, 9)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA GeForce RTX 4050 Laptop GPU", (8, 9)),
        ("NVIDIA A100-PCIE-40GB", (8, 0)),
        ("NVIDIA RTX A2000 12GB", (8, 6)),
        ("NVIDIA GeForce RTX 2050", (8, 6)),
        ("NVIDIA A10G", (8, 6)),
        ("Quadro RTX 5000", (7, 5)),
        ("NVIDIA GeForce RTX 2080 SUPER", (7, 5)),
        ("NVIDIA GeForce GTX 1650", (7, 5)),
        ("NVIDIA TITAN V", (7, 0)),
        ("Tesla P100-PCIE-16GB", (6, 0)),
        ("Quadro P2000", (6, 1)),
        ("GeForce GTX 980 Ti", (5, 2)),
        ("Tesla K80", (3, 5)),
        ("NVIDIA card 10de:1f08", None),
    ],
)
def test_a_generation_is_known_by_name(name: str, capability: tuple[int, int] | None) -> None:
    assert nvidia.capability_of_name(name) == capability


@pytest.mark.parametrize(
    ("windows", "nvidias"),
    [
        ("32.0.15.6094", "560.94"),
        ("31.0.15.2879", "528.79"),
        ("27.21.14.5671", "456.71"),
        ("10.0", None),
        ("10.0.1.234", None),
        ("x.y.z", None),
        ("31.0.15.28x9", None),
    ],
)
def test_windows_version_of_the_driver_is_translated(windows: str, nvidias: str | None) -> None:
    assert nvidia.windows_driver(windows) == nvidias


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ("http://user:pa/ss@proxy:8080", "http://proxy:8080"),
        ("user:secret@proxy:8080", "proxy:8080"),
        ("http=u:p@one:80;https=u:p@two:443", "http=one:80;https=two:443"),
        ("http://proxy:8080", "http://proxy:8080"),
        ("localhost,127.0.0.1", "localhost,127.0.0.1"),
    ],
)
def test_no_password_of_a_proxy_is_kept(value: str, clean: str) -> None:
    assert network.without_credentials(value) == clean


def test_the_registry_and_drives_are_windows_only(tmp_path: Path) -> None:
    computer = Computer(timeout_s=1)
    if sys.platform != "win32":
        assert windows_calls.registry_values("HKLM\\SOFTWARE") == computer.registry("HKLM\\SOFTWARE") == {}
        assert (computer.registry_keys("HKLM\\SOFTWARE"), computer.memory(), computer.drives()) == ([], None, [])
        assert computer.space(str(tmp_path))
        assert computer.space(str(tmp_path / "absent")) is None
    assert computer.read(str(tmp_path / "absent")) is None
    assert computer.names(str(tmp_path / "absent")) == []
    (tmp_path / "b").write_bytes(b"\xff")
    (tmp_path / "a").write_text("text", encoding="utf-8")
    assert computer.names(str(tmp_path)) == ["a", "b"]
    assert computer.read(str(tmp_path / "a")) == "text"
    assert computer.exists(str(tmp_path / "b"))


def test_questions_to_the_computer_are_bounded_and_sizes_are_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], float]] = []
    monkeypatch.setattr(bounded, "run", lambda command, timeout_s: asked.append((command, timeout_s)))
    Computer(timeout_s=10).run(["one"])
    Computer(timeout_s=10).run(["two"], 3.0)
    assert asked == [(["one"], 5.0), (["two"], 3.0)]
    volume = SimpleNamespace(f_blocks=100, f_bfree=50, f_bavail=7, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: volume, raising=False)
    assert Computer(timeout_s=1).space("/") == Space(409_600, 28_672)
    drives = [("C:\\", "fixed", "NTFS", (10, 4)), ("Z:\\", "network", None, None)]
    monkeypatch.setattr(windows_calls, "drives", lambda: drives)
    assert Computer(timeout_s=1).drives() == [
        ("C:\\", "fixed", "NTFS", Space(10, 4)),
        ("Z:\\", "network", None, None),
    ]


@pytest.mark.parametrize(
    ("values", "version"),
    [
        ({"Installed": 1, "Major": 14, "Minor": 44}, (14, 44)),
        ({"Installed": 0, "Major": 14, "Minor": 44}, (0, 0)),
        ({"Installed": 1, "Major": "14", "Minor": 44}, (0, 0)),
        ({"Installed": 1, "Major": 14}, (0, 0)),
    ],
)
def test_the_newest_runtime_that_is_installed_counts(values: dict[str, Any], version: tuple[int, int]) -> None:
    registry = {system.VC_RUNTIMES[0]: values, system.VC_RUNTIMES[1]: {"Installed": 1, "Major": 0, "Minor": 0}}
    assert system.facts(changed("windows-intel-only", registry=registry))["vc_runtime"] == version
    registry[system.VC_RUNTIMES[1]] = {"Installed": 1, "Major": 14, "Minor": 50}
    assert system.facts(changed("windows-intel-only", registry=registry))["vc_runtime"] == (14, 50)


@pytest.mark.parametrize(
    ("values", "name", "build"),
    [
        ({"CurrentBuild": "21999", "ProductName": "Windows 10 Pro"}, "Windows 10 Pro", "21999"),
        ({"CurrentBuild": "22000", "ProductName": "Windows 10 Pro", "UBR": 7}, "Windows 11 Pro", "22000.7"),
        ({"CurrentBuild": "odd", "ProductName": "Windows 10", "ReleaseId": "1909"}, "Windows 10 1909", "odd"),
        ({"DisplayVersion": "24H2", "ReleaseId": "2009"}, "Windows 24H2", None),
    ],
)
def test_windows_11_calls_itself_10(values: dict[str, Any], name: str, build: str | None) -> None:
    facts = system.facts(changed("windows-intel-only", registry={system.WINDOWS: values}))
    assert (facts["system_name"], facts["system_build"], facts["long_paths"]) == (name, build, False)


def test_a_processor_of_one_thread_has_a_name() -> None:
    rows = "processor\t: 0\nmodel name\t: A  small   CPU\n"
    facts = system.facts(changed("linux-no-gpu", files={"/proc/cpuinfo": rows}))
    assert (facts["cpu_name"], facts["cpu_threads"]) == ("A small CPU", 1)


def test_the_registry_tells_distributions_when_wsl_hangs() -> None:
    keys = {"{a}": {"DistributionName": "Ubuntu"}, "{b}": {"DistributionName": "Debian", "Version": 2}, "{c}": {}}
    registry = {f"{wsl.DISTRIBUTIONS}\\{key}": values for key, values in keys.items()}
    registry[wsl.DISTRIBUTIONS] = {"DefaultDistribution": "{a}"}
    old, new = (
        WslDistribution(name="Ubuntu", version=1, default=True),
        WslDistribution(name="Debian", version=2, default=False),
    )
    computer = changed("windows-intel-only", programs={"wsl.exe -l -v": None}, registry=registry)
    assert wsl.facts(computer)["wsl"] == Wsl(state="ready", distributions=(old, new))
    del registry[f"{wsl.DISTRIBUTIONS}\\{{b}}"]
    computer = changed("windows-intel-only", programs={"wsl.exe -l -v": None}, registry=registry)
    assert wsl.facts(computer)["wsl"] == Wsl(state="version-1", distributions=(old,))


@pytest.mark.parametrize("name", ["windows-intel-only", "linux-no-gpu"])
def test_nvidia_smi_is_looked_for_where_the_system_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(nvidia.nvidia_smi, "read", lambda run, windows: asked.append(windows))
    nvidia.facts(changed(name))
    assert asked == [name.startswith("windows")]


def test_a_python_is_one_however_windows_spells_its_folder() -> None:
    python = "C:\\Python312\\python.exe"
    variables = {"PATH": "c:\\PYTHON312;C:\\Other\\"}
    files = {"c:\\PYTHON312\\python.exe": "", "C:\\Other\\python.exe": "", "C:\\Other\\python3": ""}
    computer = changed("windows-intel-only", python=python, variables=variables, files=files, registry={})
    assert interpreters.places(computer) == [python, "C:\\Other\\python.exe"]
    linux = {"/opt/python3": "", "/OPT/python3": "", "/link/python3.12": ""}
    computer = changed(
        "linux-no-gpu",
        python="/opt/python3",
        variables={"PATH": "/OPT:/link"},
        files=linux,
        links={"/link/python3.12": "/opt/python3"},
    )
    assert interpreters.places(computer) == ["/opt/python3", "/OPT/python3"]


@pytest.mark.parametrize(("limit", "page_file"), [(40, 8), (32, 0), (30, 0)])
def test_what_windows_promises_beyond_its_memory_is_the_page_file(limit: int, page_file: int) -> None:
    computer = changed("windows-intel-only", memory=[32, 20, limit, 5])
    assert memory.facts(computer) == {
        "ram_total_bytes": 32,
        "ram_free_bytes": 20,
        "commit_limit_bytes": limit,
        "commit_used_bytes": limit - 5,
        "page_file_bytes": page_file,
    }


def test_what_linux_has_of_memory_and_swap() -> None:
    rows = {"MemTotal": 100, "MemAvailable": 60, "SwapTotal": 50, "SwapFree": 40}
    text = "".join(f"{name}:   {number} kB\n" for name, number in rows.items())
    assert memory.facts(changed("linux-no-gpu", files={"/proc/meminfo": text})) == {
        "ram_total_bytes": 102_400,
        "ram_free_bytes": 61_440,
        "commit_limit_bytes": 153_600,
        "commit_used_bytes": 51_200,
        "page_file_bytes": 51_200,
    }
    assert memory.facts(changed("linux-no-gpu", files={"/proc/meminfo": text[1:]})) == {}


def test_a_driver_that_hangs_leaves_time_to_name_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Recorded):
        """Every question about the driver takes as long as it may."""

        spent_s = 0.0

        def nvml(self, timeout_s: float) -> None:
            self.spent_s += timeout_s

        def run(self, command: list[str], timeout_s: float | None = None) -> None:
            assert "nvidia-smi" in command[0]
            self.spent_s += timeout_s or self.timeout_s

    computer = Hanging(load("windows-driver-hangs-rtx-5080"))
    monkeypatch.setattr(nvidia.time, "monotonic", lambda: computer.spent_s)
    (gpu,) = nvidia.facts(computer)["gpus"]
    assert gpu.name == "NVIDIA GeForce RTX 5080"
    assert computer.spent_s == pytest.approx(0.8 * computer.timeout_s)


def test_a_driver_that_hangs_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(nvml, "read", lambda: release.wait(60) and None)
    try:
        assert Computer(timeout_s=1).nvml(0.1) is None
    finally:
        release.set()


FULL = Machine(
    system="windows",
    system_name="Windows 11 Pro 23H2",
    system_build="22631.1",
    language="en_US",
    is_wsl=True,
    cpu_name="A processor",
    ram_total_bytes=32 * GIB,
    commit_limit_bytes=40 * GIB,
    commit_used_bytes=12 * GIB,
    page_file_bytes=8 * GIB,
    gpus=(
        Gpu(
            index=0,
            name="NVIDIA GeForce RTX 3060",
            compute_capability=(8, 6),
            total_bytes=12 * GIB,
            free_bytes=2 * GIB,
            processes=(GpuProcess(pid=7, name="ollama.exe", used_bytes=9 * GIB), GpuProcess(pid=8)),
        ),
        Gpu(index=1, name="Tesla P40"),
    ),
    driver=Driver(version="552.44", cuda_version=(12, 4), problem="fan fell off"),
    other_gpus=("Intel UHD",),
    disks=(
        Disk(path="C:\\", kind="fixed", file_system="NTFS", total_bytes=100 * GIB, free_bytes=9 * GIB),
        Disk(path="Z:\\", kind="network"),
    ),
    vc_runtime=(14, 42),
    long_paths=False,
    pythons=(
        PythonCandidate(executable="a.exe", version=(3, 12, 8)),
        PythonCandidate(executable="b.exe", problem="alias of the Windows Store"),
        PythonCandidate(executable="c.exe", problem="alias of the Windows Store"),
        PythonCandidate(executable="d.exe", version=(3, 12, 1), problem="part of conda"),
        PythonCandidate(executable="nameless.exe"),
    ),
    wsl=Wsl(state="ready", distributions=(WslDistribution(name="Ubuntu", version=2, running=True),)),
    leaks={"CC": "gcc"},
    proxies={"HTTP_PROXY": "http://proxy"},
    tls={"PIP_CERT": "company.pem"},
    security=("ESET",),
    unknown=("network",),
)


def test_a_person_reads_a_table() -> None:
    assert report.lines(FULL, profiles.choose(FULL)) == [
        "System        Windows 11 Pro 23H2 (22631.1), en_US, inside the Windows Subsystem for Linux",
        "Processor     A processor, ? threads",
        "Memory        32.0 GiB, ? free",
        "Page file     8.0 GiB, programs have reserved 12.0 GiB of 40.0 GiB",
        "GPU 0         NVIDIA GeForce RTX 3060, compute capability 8.6, 12.0 GiB, 2.0 GiB free",
        "              memory used by ollama.exe (7): 9.0 GiB",
        "              memory used by PID (8)",
        "GPU 1         Tesla P40",
        "Driver        552.44, supports CUDA up to 12.4 (nvml), does not work: fan fell off",
        "Other GPU     Intel UHD",
        "Disk          C:\\ fixed NTFS, 100.0 GiB, 9.0 GiB free",
        "Disk          Z:\\ network",
        "Long paths    not allowed (260 characters at most)",
        "Python        3.12.8 a.exe",
        "              not used (2): b.exe (alias of the Windows Store)",
        "              not used (1): d.exe (part of conda)",
        "VC++ runtime  14.42",
        "WSL           ready: Ubuntu (version 2, running)",
        "Shell         CC=gcc",
        "Proxy         HTTP_PROXY=http://proxy",
        "TLS           PIP_CERT=company.pem",
        "Security      ESET",
        "Profile       RTX 3060 and P40, driver 552: the NVIDIA driver does not answer",
        "              the NVIDIA driver does not answer [driver-missing]",
        "              fan fell off [driver-missing]",
        "Unknown       network: no answer in time",
    ]


def test_a_person_reads_what_is_missing_too() -> None:
    bare = Machine(
        system="linux",
        gpus=(),
        long_paths=True,
        vc_runtime=(0, 0),
        wsl=Wsl(state="not-installed"),
        driver=Driver(version="550.1"),
    )
    text = "\n".join(report.lines(bare, profiles.choose(bare)))
    assert text.splitlines() == [
        "System        Linux",
        "GPU           No NVIDIA GPU",
        "Driver        550.1 (nvml)",
        "Long paths    allowed",
        "VC++ runtime  missing",
        "WSL           not-installed",
        "Profile       No NVIDIA GPU: CPU",
    ]
    swap = Machine(system="linux", commit_limit_bytes=GIB, cpu_name="A processor", cpu_threads=8)
    assert report.lines(swap, profiles.choose(swap))[1:3] == [
        "Processor     A processor, 8 threads",
        "Swap          ?, programs have reserved ? of 1.0 GiB",
    ]


@pytest.mark.parametrize("arguments", [["probe"], ["probe", "--json"]])
def test_a_console_that_lacks_letters_gets_the_rest_of_the_answer(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = probe.machine(computer=Recorded(load("windows-chinese-laptop-rtx-3060")))
    monkeypatch.setattr(probe, "machine", lambda: machine)
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert command_line.main(arguments) == 0
    text = written.getvalue().decode()
    assert "Windows 11 " in text
    if arguments[1:]:
        facts = json.loads(text)
        assert Machine.from_dict(facts) == machine
        assert facts["choice"]["sentence"] == "RTX 3060 Laptop, driver 552: CUDA 12.4"
        assert facts["choice"]["profile"]["name"] == "cu124"


def test_a_drive_of_unknown_make_and_size() -> None:
    computer = changed(
        "linux-no-gpu",
        files={"/proc/mounts": "odd line\noverlay / overlay rw 0 0\nC: /mnt/c 9p\nsrv:/x /mnt/share 9p rw 0 0\n"},
        space={"/": [2 * GIB, GIB]},
    )
    assert computer.space("/") == Space(2 * GIB, GIB)
    assert probe.machine(computer=computer).disks == (
        Disk(path="/", kind="unknown", file_system="overlay", total_bytes=2 * GIB, free_bytes=GIB),
        Disk(path="/mnt/c", kind="unknown", file_system="drvfs"),
        Disk(path="/mnt/share", kind="network", file_system="9p"),
    )
