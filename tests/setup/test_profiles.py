"""The build of PyTorch is chosen by the compute capability of all GPUs, as the driver's library tells."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tunesmith_setup import profiles


class FakeNvml:
    """A driver library with GPUs of these capabilities; None is one that can't be asked."""

    def __init__(self, capabilities: list[tuple[int, int] | None], *, broken: bool = False) -> None:
        self.capabilities = capabilities
        self.broken = broken

    def nvmlInit_v2(self) -> int:
        return 999 if self.broken else 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.capabilities)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 15 if self.capabilities[index.value] is None else 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        capability = self.capabilities[(handle.value or 0) - 1]
        assert capability
        major._obj.value, minor._obj.value = capability
        return 0


@pytest.mark.parametrize(
    ("capabilities", "name"),
    [
        ([(6, 1)], "cu124"),
        ([(8, 6), (7, 5)], "cu124"),
        ([(9, 0)], "cu124"),
        ([(10, 0)], "cu128"),
        ([(8, 9), (12, 0)], "cu128"),
        ([None, (12, 0)], "cu128"),
    ],
)
def test_all_gpus_decide(
    monkeypatch: pytest.MonkeyPatch, capabilities: list[tuple[int, int] | None], name: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeNvml(capabilities))
    assert profiles.compute_capabilities() == [capability for capability in capabilities if capability]
    assert profiles.choose() is profiles.PROFILES[name]


@pytest.mark.parametrize(("driver", "name"), [(True, "cu124"), (False, "cpu")])
def test_without_an_answer_the_presence_of_the_driver_decides(
    monkeypatch: pytest.MonkeyPatch, driver: bool, name: str
) -> None:
    monkeypatch.setattr(profiles, "nvidia_present", lambda: driver)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: FakeNvml([(8, 6)], broken=True))
    assert profiles.choose().name == name

    def no_library(_: str) -> None:
        raise OSError("not found")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert profiles.compute_capabilities() == []
    assert profiles.choose().name == name
