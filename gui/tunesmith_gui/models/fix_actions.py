"""What the window does for the actions that the diagnosis and the checks name; the names are of `core.explain.actions`.

An action becomes a button only where the program can really do it; for the others the words of the fix must do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tunesmith_core.explain.actions import ACTIONS
from tunesmith_gui.tr import core_text

Kind = Literal["environment", "page", "link", "run"]


@dataclass(frozen=True, slots=True)
class Deed:
    """How an action is done.

    Attributes:
        kind: "environment" (the Environment page with `target` as its argument), "page" (another page), "link" (an
            address in the browser) or "run" (the form of a new run, changed as `target` says).
    """

    kind: Kind
    target: str


DRIVER_PAGE = "https://www.nvidia.com/en-us/drivers/"
VC_RUNTIME_PAGE = "https://learn.microsoft.com/cpp/windows/latest-supported-vc-redist"

PAGE_FILE_SETTINGS = "file:///C:/Windows/System32/SystemPropertiesPerformance.exe"

DEEDS: dict[str, Deed] = {
    "repair-environment": Deed("environment", "repair"),
    "switch-profile": Deed("environment", "profile"),
    "clear-compile-caches": Deed("environment", "compiled"),
    "use-wsl": Deed("environment", "wsl"),
    "install-wsl": Deed("environment", "wsl"),
    "free-disk": Deed("environment", "disk"),
    "open-driver-page": Deed("link", DRIVER_PAGE),
    "install-vc-runtime": Deed("link", VC_RUNTIME_PAGE),
    "open-page-file-settings": Deed("link", PAGE_FILE_SETTINGS),
    "move-folders": Deed("environment", "move"),
    "set-proxy": Deed("page", "settings"),
    "use-cpu": Deed("run", "use-cpu"),
    "use-pytorch-kernels": Deed("run", "use-pytorch-kernels"),
    "lower-learning-rate": Deed("run", "lower-learning-rate"),
    "map-columns": Deed("run", "duplicate"),
    "check-data": Deed("run", "duplicate"),
    "choose-model": Deed("run", "duplicate"),
    "choose-target-modules": Deed("run", "duplicate"),
}


def doable(name: str) -> bool:
    """Whether there is a button for an action."""
    return name in DEEDS


def action_label(name: str) -> str:
    """The words of an action's button."""
    return core_text(ACTIONS.get(name, name))
