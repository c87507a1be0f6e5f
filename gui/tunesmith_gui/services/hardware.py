"""What this computer has and how busy it is: GPUs through NVIDIA's library, processor and memory through psutil.

Readings are taken on a thread of their own (a driver may take a second to answer) and only while somebody looks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

PERIOD_S = 2.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment; None where its driver does not tell.

    Attributes:
        index: number as nvidia-smi counts.
        used_bytes: taken by all programs together.
    """

    index: int
    name: str
    total_bytes: int
    used_bytes: int
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The computer at one moment; `gpus` is empty where no NVIDIA GPU answers."""

    gpus: tuple[Gpu, ...]
    cpu_percent: float
    memory_total_bytes: int
    memory_used_bytes: int


class HardwareService(QObject):
    """Takes readings while watched.

    Signals:
        changed: (Reading) about every two seconds while watched.
    """

    changed = Signal(object)

    def __init__(self, read: Callable[[], Reading] | None = None) -> None:
        super().__init__()
        self.latest: Reading | None = None
        self._read = read
        self._thread: threading.Thread | None = None
        self._wake = threading.Condition()
        self._watched = False
        self._ended = False
        self.changed.connect(self._remember)

    def watch(self, watched: bool) -> None:
        """Begins or pauses the readings."""
        with self._wake:
            self._watched = watched
            self._wake.notify()
        if watched and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hardware", daemon=True)
            self._thread.start()

    def shutdown(self) -> None:
        """Ends the thread."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _remember(self, reading: Reading) -> None:
        self.latest = reading

    def _run(self) -> None:
        read = self._read or Probe().read
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._watched or self._ended)
                if self._ended:
                    return
            reading = read()
            with contextlib.suppress(RuntimeError):  # the window was closed meanwhile
                self.changed.emit(reading)
            with self._wake:
                self._wake.wait_for(lambda: self._ended, timeout=PERIOD_S)


class Probe:
    """Reads through pynvml and psutil; imported here because both take a while to load."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._nvml: Any = None  # Any: pynvml has no types
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:
            return  # no driver, no library or a broken one: the strip shows processor and memory instead
        self._nvml = pynvml

    def read(self) -> Reading:
        """One reading of everything."""
        memory = self._psutil.virtual_memory()
        return Reading(
            gpus=tuple(self._gpus()),
            cpu_percent=float(self._psutil.cpu_percent()),
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.total - memory.available,
        )

    def _gpus(self) -> list[Gpu]:
        if self._nvml is None:
            return []
        try:
            return [self._gpu(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        except self._nvml.NVMLError:
            return []  # the driver went away, e.g. while it is being updated

    def _gpu(self, index: int) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name = nvml.nvmlDeviceGetName(handle)
        power_mw = self._optional(nvml.nvmlDeviceGetPowerUsage, handle)
        rates = self._optional(nvml.nvmlDeviceGetUtilizationRates, handle)
        return Gpu(
            index=index,
            name=name.decode() if isinstance(name, bytes) else name,
            total_bytes=int(memory.total),
            used_bytes=int(memory.used),
            utilization_percent=None if rates is None else int(rates.gpu),
            temperature_c=self._optional(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
        )

    def _optional(self, ask: Callable[..., Any], *arguments: object) -> Any:  # Any: what NVML answers
        try:
            return ask(*arguments)
        except self._nvml.NVMLError:
            return None
