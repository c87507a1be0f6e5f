"""Measures what every wheel of the locks weighs, to download and on the disk, and writes wheel_sizes.json (needs uv).

The index is asked for the length of each wheel and for the wheel's last bytes, which list its files: nothing is
downloaded whole. Run by update.sh; addresses are used and not written.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

LOCKS = Path(__file__).resolve().parent
PLATFORMS = {"linux": "x86_64-manylinux_2_34", "win": "x86_64-pc-windows-msvc"}
TAIL_BYTES = 4 * 1024 * 1024
"""Holds the list of files of every wheel, PyTorch's ten thousand included."""

ON_PYTORCH_INDEX = {"cu124-win": (2_500_000_000, 4_500_000_000), "cu128-win": (2_900_000_000, 5_000_000_000)}
"""PyTorch's own Windows wheels, which are not measured here: sizes that people report, rounded."""


@cache
def wheel_size(address: str) -> tuple[int, int]:
    """Return the bytes of a wheel and the bytes of the files in it."""
    with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=120) as answer:
        download_bytes = int(answer.headers["Content-Length"])
    start = max(0, download_bytes - TAIL_BYTES)
    request = urllib.request.Request(address, headers={"Range": f"bytes={start}-{download_bytes - 1}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        tail = io.BytesIO(answer.read())
    with zipfile.ZipFile(tail) as archive:
        return download_bytes, sum(entry.file_size for entry in archive.infolist())


def wheels(lock: Path) -> dict[str, str]:
    """Return the address of the wheel that uv takes for each package of a lock, without those on PyTorch's index."""
    _, system, tag = lock.stem.rsplit("-", 2)
    lines = lock.read_text(encoding="utf-8").splitlines()
    pins = [line.split()[0] for line in lines if re.match(r"[a-z0-9-]+==", line)]
    options = ["--quiet", "--no-config", "--no-deps", "--only-binary", ":all:", "--no-python-downloads"]
    options += ["--python-platform", PLATFORMS[system], "--python-version", f"3.{tag[3:]}", "--format", "pylock.toml"]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "pins.in", Path(folder) / "pylock.toml"
        source.write_text("\n".join(pin for pin in pins if "+" not in pin), encoding="utf-8")
        subprocess.run(["uv", "pip", "compile", *options, str(source), "--output-file", str(target)], check=True)
        packages = tomllib.loads(target.read_text(encoding="utf-8"))["packages"]
    return {package["name"]: package["wheels"][0]["url"] for package in packages}


def measure(lock: Path) -> dict[str, tuple[int, int]]:
    """Return the two sizes of each package of a lock."""
    found = wheels(lock)
    with ThreadPoolExecutor(8) as pool:
        sizes = dict(zip(found, pool.map(wheel_size, found.values()), strict=True))
    kind = lock.stem.rpartition("-")[0]
    return sizes | ({"torch": ON_PYTORCH_INDEX[kind]} if kind in ON_PYTORCH_INDEX else {})


def main() -> None:
    """Measure every lock of an environment and write the result, one lock a line."""
    lines = []
    for lock in sorted(LOCKS.glob("*-py3*.txt")):
        sys.stderr.write(f"sizes of {lock.name}\n")
        lines.append(f"{json.dumps(lock.stem)}: {json.dumps(measure(lock), separators=(',', ':'))}")
    (LOCKS / "wheel_sizes.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
