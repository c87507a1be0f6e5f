"""Which build of PyTorch a computer gets, and the sentence that says why; whole computers: test_probe_machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunesmith_core.error_codes import CODES
from tunesmith_core.machine import Driver, Gpu, Machine
from tunesmith_setup.environments import kinds, profiles
from tunesmith_setup.probe.interpreters import Interpreter

RTX_3060 = Gpu(index=0, name="NVIDIA GeForce RTX 3060", compute_capability=(8, 6))
B200 = Gpu(index=0, name="NVIDIA B200", compute_capability=(10, 0))
RTX_5090 = Gpu(index=0, name="NVIDIA GeForce RTX 5090", compute_capability=(12, 0))
GTX_1080 = Gpu(index=1, name="NVIDIA GeForce GTX 1080", compute_capability=(6, 1))
GTX_960 = Gpu(index=1, name="NVIDIA GeForce GTX 960", compute_capability=(5, 2))
V100 = Gpu(index=1, name="Tesla V100-SXM2-16GB", compute_capability=(7, 0))
T4 = Gpu(index=2, name="Tesla T4", compute_capability=(7, 5))


def computer(*gpus: Gpu, driver: str | None = "575.64", system: str = "linux", **facts: object) -> Machine:
    return Machine(system=system, gpus=gpus, driver=Driver(version=driver) if driver else None, **facts)  # type: ignore[arg-type]


def warnings(choice: profiles.Choice) -> list[str]:
    assert {warning.code for warning in choice.warnings} <= set(CODES)
    return [warning.code for warning in choice.warnings]


@pytest.mark.parametrize(
    ("system", "driver", "gpu", "fits"),
    [
        ("linux", "525.60.13", RTX_3060, True),
        ("linux", "525.53", RTX_3060, False),
        ("linux", "515.105.01", RTX_3060, False),
        ("windows", "528.33", RTX_3060, True),
        ("windows", "528.24", RTX_3060, False),
        ("linux", "570.26", RTX_5090, True),
        ("linux", "565.77", RTX_5090, False),
        ("linux", "570.26", B200, True),
        ("linux", "570.25", B200, False),
        ("windows", "570.65", RTX_5090, True),
        ("windows", "566.36", RTX_5090, False),
        ("linux", "unreadable", RTX_5090, True),
    ],
)
def test_a_driver_below_the_floor_is_a_problem(system: str, driver: str, gpu: Gpu, fits: bool) -> None:
    choice = profiles.choose(computer(gpu, driver=driver, system=system))
    assert choice.profile.name == ("cu124" if gpu is RTX_3060 else "cu128")
    assert choice.problem == (None if fits else "driver-too-old")
    assert ("or newer" in choice.sentence) is not fits


def test_inside_the_subsystem_for_linux_the_drivers_floor_is_that_of_windows() -> None:
    assert profiles.choose(computer(RTX_3060, driver="527.56")).problem is None
    assert profiles.choose(computer(RTX_3060, driver="527.56", is_wsl=True)).problem == "driver-too-old"


def test_one_blackwell_gpu_decides_for_all_and_says_who_is_left_out() -> None:
    choice = profiles.choose(computer(RTX_5090, V100, T4))
    assert choice.profile is profiles.PROFILES["cu128"]
    assert choice.sentence == "RTX 5090, V100-SXM2-16GB and T4, driver 575: CUDA 12.8"
    assert warnings(choice) == ["triton-arch-unsupported"]
    plain = "No Triton kernels for V100-SXM2-16GB and T4. Training needs more memory and time there."
    assert choice.warnings[0].text == plain
    with_pascal = profiles.choose(computer(RTX_5090, GTX_1080))
    assert warnings(with_pascal) == ["no-kernel-image-for-arch"]
    can_not = "CUDA 12.8 can't use GTX 1080."
    assert with_pascal.warnings[0].text == (
        f"{can_not} Choose CUDA 12.4 to train on it. The newer GPU can't be used then."
    )
    assert profiles.choose(computer(RTX_5090, GTX_960)).warnings[0].text == "CUDA 12.8 can't use GTX 960."
    assert profiles.choose(computer(RTX_5090), "cu124").warnings[0].text == (
        "CUDA 12.4 can't use RTX 5090. CUDA 12.8 can."
    )


NO_KERNELS, PLAIN = "no-kernel-image-for-arch", "triton-arch-unsupported"


@pytest.mark.parametrize(
    ("capability", "cu124", "cu128"),
    [
        ((5, 2), [NO_KERNELS], [NO_KERNELS]),
        ((6, 0), [PLAIN], [NO_KERNELS]),
        ((7, 0), [PLAIN], [PLAIN]),
        ((7, 5), [], [PLAIN]),
        ((8, 0), [], []),
        ((9, 0), [], []),
        ((10, 0), [NO_KERNELS], []),
        ((12, 0), [NO_KERNELS], []),
        (None, [], []),
    ],
)
def test_each_build_serves_a_range_of_gpus(
    capability: tuple[int, int] | None, cu124: list[str], cu128: list[str]
) -> None:
    machine = computer(Gpu(index=0, name="Card", compute_capability=capability))
    assert warnings(profiles.choose(machine, "cu124")) == cu124
    assert warnings(profiles.choose(machine, "cu128")) == cu128
    served = {"cpu"} if cu124 == cu128 == [NO_KERNELS] else {"cu128"} if cu124 == [NO_KERNELS] else {"cu124"}
    assert {profiles.choose(machine).profile.name} == served


def test_expected_sizes_are_about_what_was_measured() -> None:
    for profile in profiles.PROFILES.values():
        for minor in (11, 12, 13):
            environment = kinds.training_environment(Interpreter(Path("python"), (3, minor)), profile)
            assert environment.disk_bytes() == pytest.approx(profile.installed_bytes, rel=0.2)


def test_a_gpu_that_no_build_serves_changes_nothing_for_the_others() -> None:
    choice = profiles.choose(computer(RTX_3060, GTX_960))
    assert choice.profile.name == "cu124"
    assert warnings(choice) == ["no-kernel-image-for-arch"]
    assert choice.warnings[0].text == "CUDA 12.4 can't use GTX 960."
    alone = profiles.choose(computer(GTX_960))
    assert (alone.profile.name, alone.problem, alone.sentence) == ("cpu", None, "GTX 960 is too old: CPU")
    assert warnings(alone) == ["no-kernel-image-for-arch"]
    assert alone.warnings[0].text == "GTX 960 is too old for PyTorch, which needs a GTX 1000 or newer."
    no_gpu = profiles.choose(computer(other_gpus=("Intel UHD", "AMD Radeon")))
    assert (no_gpu.sentence, no_gpu.warnings) == ("No NVIDIA GPU (Intel UHD, AMD Radeon): CPU", ())


def test_what_is_unknown_is_no_fault() -> None:
    nameless = Gpu(index=0, name="NVIDIA GPU")
    choice = profiles.choose(computer(nameless, driver=None, unknown=("nvidia",)))
    assert (choice.profile.name, choice.sentence, choice.problem) == ("cu124", "NVIDIA GPU: CUDA 12.4", None)
    silent = profiles.choose(Machine(system="linux", unknown=("nvidia",)))
    assert (silent.profile.name, silent.sentence) == ("cpu", "NVIDIA GPUs did not answer: CPU")
    assert warnings(silent) == ["driver-missing"]


def test_a_driver_that_does_not_work_must_be_repaired_first() -> None:
    broken = Machine(system="linux", gpus=(RTX_3060,), driver=Driver(version="", problem="mismatch"))
    choice = profiles.choose(broken)
    assert choice.sentence == "RTX 3060: the NVIDIA driver does not answer"
    assert choice.warnings[-1].text == "mismatch"
    assert choice.problem == "driver-missing"
    assert [notice.code for notice in choice.warnings] == ["driver-missing", "driver-missing"]
    missing = profiles.choose(computer(RTX_3060, driver=None))
    assert missing.problem == "driver-missing"
    assert missing.sentence == "RTX 3060: CUDA 12.4 needs the NVIDIA driver, which is missing"


@pytest.mark.parametrize(
    ("asked", "machine", "sentence", "codes"),
    [
        ("cpu", computer(RTX_3060), "RTX 3060, driver 575: CPU, as requested", []),
        ("cu128", computer(RTX_3060), "RTX 3060, driver 575: CUDA 12.8, as requested", []),
        ("cu128", computer(GTX_960), "GTX 960, driver 575: CUDA 12.8, as requested", ["no-kernel-image-for-arch"]),
        ("cu124", computer(RTX_5090), "RTX 5090, driver 575: CUDA 12.4, as requested", ["no-kernel-image-for-arch"]),
        (
            "cu124",
            computer(RTX_3060, driver="470.82"),
            "RTX 3060, driver 470: CUDA 12.4, as requested",
            ["driver-too-old"],
        ),
        ("cu124", computer(), "No NVIDIA GPU: CUDA 12.4, as requested", ["driver-missing"]),
    ],
)
def test_who_asks_gets_what_was_asked_for_and_hears_what_speaks_against_it(
    asked: str, machine: Machine, sentence: str, codes: list[str]
) -> None:
    choice = profiles.choose(machine, asked)
    assert choice.profile.name == asked
    assert choice.sentence == sentence
    assert warnings(choice) == codes
    assert choice.problem is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"),
        ("Quadro RTX 4000", "RTX 4000"),
        ("Quadro P4000", "Quadro P4000"),
        ("Tesla P40", "P40"),
        ("NVIDIA GPU", "NVIDIA GPU"),
    ],
)
def test_a_gpu_is_called_what_people_call_it(name: str, short: str) -> None:
    assert profiles.short_name(Gpu(index=0, name=name)) == short


def test_a_drivers_version_has_at_most_three_numbers() -> None:
    assert profiles.driver_version("551.61.02.9") == (551, 61, 2)
    assert profiles.driver_version("none") == ()


def test_gpus_of_one_kind_are_counted() -> None:
    card, other = Gpu(index=0, name="NVIDIA GeForce RTX 3090"), Gpu(index=1, name="Tesla P40")
    assert profiles._names((card, card, other)) == "2 x RTX 3090 and P40"
    assert profiles._names((card, other)) == "RTX 3090 and P40"
