"""What the program can do about a cause: names for programs, labels for buttons, and where it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """What helps against a cause.

    Attributes:
        label: for a button.
        place: where the window does it: "environment" (the Environment page with `target` as its argument), "page"
            (another page), "link" (an address), "run" (the form of a new run, changed as `target` says) or "setting"
            (that form, opened at the setting `target`); "" where the words of the fix must do, and for what only one
            page offers.
    """

    label: str
    place: str = ""
    target: str = ""


_VC_RUNTIME_PAGE = "https://learn.microsoft.com/cpp/windows/latest-supported-vc-redist"
RAISE_CONTEXT = "raise-context-length"
_PAGE_FILE_SETTINGS = "file:///C:/Windows/System32/SystemPropertiesPerformance.exe"

ACTIONS = {
    "repair-environment": Action("Repair the training environment", "environment", "repair"),
    "switch-profile": Action("Install the PyTorch build for this GPU", "environment", "profile"),
    "clear-compile-caches": Action("Clear the compile caches", "environment", "compiled"),
    "use-pytorch-kernels": Action("Train without fused kernels", "run", "use-pytorch-kernels"),
    "use-standard-attention": Action("Use the standard attention"),
    "use-one-gpu": Action("Train on one GPU"),
    "use-cpu": Action("Train on the CPU", "run", "use-cpu"),
    "use-wsl": Action("Train under WSL", "environment", "wsl"),
    "install-wsl": Action("Set up WSL", "environment", "wsl"),
    "open-driver-page": Action("Open NVIDIA's driver page", "link", "https://www.nvidia.com/en-us/drivers/"),
    "install-vc-runtime": Action("Install the Visual C++ runtime", "link", _VC_RUNTIME_PAGE),
    "open-page-file-settings": Action("Open the page file settings", "link", _PAGE_FILE_SETTINGS),
    "enable-long-paths": Action("Allow long paths in Windows"),
    "move-folders": Action("Use a folder with a short, plain path", "environment", "move"),
    "free-disk": Action("Free disk space", "environment", "disk"),
    "lower-memory": Action("Use less GPU memory"),
    "lower-learning-rate": Action("Lower the learning rate", "run", "lower-learning-rate"),
    "switch-packing-off": Action("Switch packing off"),
    RAISE_CONTEXT: Action("Raise the context length", "setting", "data.context_length"),
    "map-columns": Action("Map columns…", "setting", "data.sources[0].path"),
    "skip-bad-rows": Action("Skip bad rows"),
    "read-as-windows-1252": Action("Read as Windows-1252"),
    "read-as-gb18030": Action("Read as GB18030 (Chinese)"),
    "read-as-cp950": Action("Read as Big5 (Traditional Chinese)"),
    "read-as-cp932": Action("Read as Shift JIS (Japanese)"),
    "read-as-euc_jp": Action("Read as EUC-JP (Japanese)"),
    "read-as-cp949": Action("Read as EUC-KR (Korean)"),
    "read-as-windows-1251": Action("Read as Windows-1251 (Cyrillic)"),
    "choose-data": Action("Choose another file…"),
    "train-as-chat": Action("Train as a chat"),
    "check-data": Action("Check the data file", "setting", "data.sources[0].path"),
    "choose-chat-template": Action("Choose a chat template"),
    "choose-model": Action("Choose another model", "setting", "model.path"),
    "download-model-again": Action("Download the model again"),
    "choose-target-modules": Action("Choose the LoRA target modules", "setting", "adapter.target_modules"),
    "sign-in-hub": Action("Sign in to the hub"),
    "set-proxy": Action("Set proxy and certificate", "page", "settings"),
    "retry": Action("Try again"),
}
"""By name; the labels are translated where they are shown."""


def doable(names: Iterable[str]) -> list[str]:
    """Return those of some names, perhaps of another version, that the window has a button for."""
    return [name for name in names if name in ACTIONS and ACTIONS[name].place]
