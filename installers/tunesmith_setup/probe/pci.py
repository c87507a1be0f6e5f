"""Graphics cards as the bus shows them, whether or not a driver works: Linux by sysfs, Windows by its registry.

The registry keeps cards that were taken out; what a driver says itself therefore goes first wherever it answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tunesmith_setup.probe.computer import Computer
from tunesmith_setup.probe.windows_calls import Value

NVIDIA = "10de"
MAKERS = {NVIDIA: "NVIDIA", "1002": "AMD", "8086": "Intel"}
DISPLAY_CLASS = "{4d36e968-e325-11ce-bfc1-08002be10318}"
ENUMERATION = "HKLM\\SYSTEM\\CurrentControlSet\\Enum\\PCI"
DRIVERS = f"HKLM\\SYSTEM\\CurrentControlSet\\Control\\Class\\{DISPLAY_CLASS}"
SYSFS = "/sys/bus/pci/devices"
NAME_FILES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_WINDOWS_ID = re.compile(r"pci\\ven_([0-9a-f]{4})&dev_([0-9a-f]{4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card.

    Attributes:
        maker, device: PCI numbers, four hexadecimal digits.
        name: for people.
        driver_version: of the driver that Windows has for it, as Windows counts; None elsewhere.
    """

    maker: str
    device: str
    name: str
    driver_version: str | None = None


def cards(computer: Computer) -> list[Card]:
    """Return the graphics cards of the makers above."""
    found = _windows(computer) if computer.system == "windows" else _linux(computer)
    return [card for card in found if card.maker in MAKERS]


def _windows(computer: Computer) -> list[Card]:
    with_driver = list(_with_driver(computer))
    known = {(card.maker, card.device) for card in with_driver}
    return with_driver + [card for card in _enumerated(computer) if (card.maker, card.device) not in known]


def _with_driver(computer: Computer) -> Iterator[Card]:
    for key in computer.registry_keys(DRIVERS):
        values = computer.registry(f"{DRIVERS}\\{key}")
        numbers = _WINDOWS_ID.match(str(values.get("MatchingDeviceId", "")))
        if numbers and "DriverDesc" in values:
            version = values.get("DriverVersion")
            yield Card(
                numbers[1].lower(), numbers[2].lower(), str(values["DriverDesc"]), str(version) if version else None
            )


def _enumerated(computer: Computer) -> Iterator[Card]:
    """Return cards that no maker's driver serves, such as those on the Basic Display Adapter."""
    for key in computer.registry_keys(ENUMERATION):
        numbers = _WINDOWS_ID.match(f"pci\\{key}")
        if not numbers:
            continue
        device = f"{ENUMERATION}\\{key}"
        instances = [computer.registry(f"{device}\\{name}") for name in computer.registry_keys(device)]
        kinds = [one for values in instances for one in _texts(values.get("CompatibleIDs"))]
        # Class 03 is display; the sound device of a graphics card has the same maker.
        if any(kind.upper().startswith("PCI\\CC_03") for kind in kinds):
            yield _card(numbers[1].lower(), numbers[2].lower(), None)


def _texts(value: Value | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _linux(computer: Computer) -> list[Card]:
    names = next((text for path in NAME_FILES if (text := computer.read(path))), None)
    found = []
    for device in computer.names(SYSFS):
        kind, maker, number = (_number(computer, f"{SYSFS}/{device}/{name}") for name in ("class", "vendor", "device"))
        # 0302 is a GPU without an output.
        if kind.startswith("03"):
            found.append(_card(maker, number, names))
    return found


def _number(computer: Computer, path: str) -> str:
    return (computer.read(path) or "").strip().removeprefix("0x").lower()


def _card(maker: str, device: str, names: str | None) -> Card:
    """Return a card whose name the list of PCI numbers tells, where the system has one."""
    name = None
    if names:
        # Makers begin a line, their devices are indented once.
        block = re.search(rf"^{maker}  .*\n((?:[\t#].*\n|\n)*)", names, re.MULTILINE)
        line = re.search(rf"^\t{device}  (.+)$", block[1], re.MULTILINE) if block else None
        # "GA106 [GeForce RTX 3060]": the chip, then what it is sold as.
        name = re.sub(r"^.*\[(.+)\]$", r"\1", line[1]) if line else None
    label = MAKERS.get(maker, "")
    return Card(maker, device, f"{label} {name}" if name else f"{label} card {maker}:{device}")
