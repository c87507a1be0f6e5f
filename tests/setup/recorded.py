"""Computers of other people: recorded answers of files, programs, registry and driver in place of this computer's.

A recording is a file of tests/data/machines: what each source answered, and under `expected` the facts and the choice.
A program that is null takes too long; one that is not there can't be started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fake_nvml import FakeNvml
from tunesmith_core import nvml
from tunesmith_core.bounded import Output
from tunesmith_core.nvml import Reading
from tunesmith_setup.probe.computer import Computer, Space

MACHINES = Path(__file__).resolve().parents[1] / "data" / "machines"


def load(name: str) -> dict[str, Any]:
    """Return the recording of that name."""
    recording: dict[str, Any] = json.loads((MACHINES / f"{name}.json").read_text(encoding="utf-8"))
    return recording


class Recorded(Computer):
    """Replays a recording."""

    def __init__(self, recording: dict[str, Any]) -> None:
        super().__init__(timeout_s=5.0)
        self.recording = recording
        self.system = recording["system"]
        self.variables = recording["variables"]
        self.python = recording["python"]
        self.slash = "\\" if self.system == "windows" else "/"

    def _of(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = self.recording.get(kind, {})
        return found

    def read(self, path: str) -> str | None:
        return self._of("files").get(path)

    def names(self, folder: str) -> list[str]:
        return self._below(self._of("files"), folder)

    def _below(self, paths: Mapping[str, Any], folder: str) -> list[str]:
        start = folder.rstrip(self.slash) + self.slash
        return sorted({path.removeprefix(start).split(self.slash)[0] for path in paths if path.startswith(start)})

    def exists(self, path: str) -> bool:
        return any(each == path or each.startswith(path + self.slash) for each in self._of("files"))

    def resolved(self, path: str) -> str:
        return str(self._of("links").get(path, path))

    def space(self, path: str) -> Space | None:
        sizes = self._of("space").get(path)
        return Space(*sizes) if sizes else None

    def run(self, command: list[str], timeout_s: float | None = None) -> Output | None:
        name = command[0].replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
        name = "wsl.exe" if name == "wsl" else name
        lines = (" ".join([command[0], *command[1:]]), " ".join([name, *command[1:]]))
        programs = self._of("programs")
        for known in sorted(programs, key=len, reverse=True):
            if any(
                line == known or line.startswith((known + " ", known + ".", known + ",", known + "=")) for line in lines
            ):
                return self._output(programs[known])
        return None

    @staticmethod
    def _output(answer: dict[str, Any] | None) -> Output | None:
        if answer is None:
            return None
        if "utf16" in answer:
            return Output(answer["code"], answer["utf16"].encode("utf-16-le"))
        return Output(answer["code"], answer["text"].encode())

    def nvml(self, timeout_s: float) -> Reading | None:
        answers = self.recording.get("nvml")
        return nvml.ask(FakeNvml(answers)) if isinstance(answers, dict) else None

    def registry(self, key: str) -> dict[str, Any]:
        values = self._of("registry").get(key, {})
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    def registry_keys(self, key: str) -> list[str]:
        start = key + "\\"
        return sorted(
            {path.removeprefix(start).split("\\")[0] for path in self._of("registry") if path.startswith(start)}
        )

    def memory(self) -> tuple[int, int, int, int] | None:
        numbers = self.recording.get("memory")
        return tuple(numbers) if numbers else None

    def drives(self) -> list[tuple[str, str, str | None, Space | None]]:
        drives = self.recording["drives"]
        return [(path, kind, system, Space(*sizes) if sizes else None) for path, kind, system, sizes in drives]
