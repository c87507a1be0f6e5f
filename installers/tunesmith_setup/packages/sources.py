"""Where packages come from: an index or its mirror, PyTorch's own index, through a proxy, or a folder of wheels.

The person's settings win over every variable and configuration file of pip and uv; without settings those count.
Addresses may hold passwords, so they reach uv and pip in variables and never in a command, a message or a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import redact
from tunesmith_core.environments import PROXY_VARIABLES, proxy_variables
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.settings import PYTORCH_INDEX, SettingsFile

INDEX_VARIABLES = frozenset(
    """UV_INDEX UV_DEFAULT_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL UV_INDEX_STRATEGY UV_FIND_LINKS UV_TORCH_BACKEND
    PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX""".split()
)
"""Variables that name other places than the one that the settings choose."""

_CUDA_BUILD = re.compile(r"^torch==[\d.]+\+(cu\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where downloads come from.

    Attributes:
        package_index: address of a mirror, "" for what pip and uv are set up with.
        pytorch_index: address of PyTorch's wheel index, which has one folder for each build.
        proxy: address of the proxy for every download, "" for what this computer is set up with.
        wheel_folder: a folder that replaces all downloads, or None.
    """

    package_index: str = ""
    pytorch_index: str = PYTORCH_INDEX
    proxy: str = ""
    wheel_folder: Path | None = None

    @classmethod
    def chosen(cls) -> Sources:
        """Return what the person's settings choose."""
        values = SettingsFile().values
        folder = Path(values.wheel_folder) if values.wheel_folder else None
        return cls(values.package_index, values.pytorch_index or PYTORCH_INDEX, values.proxy, folder)

    @property
    def network(self) -> bool:
        """Whether anything may be downloaded."""
        return self.wheel_folder is None

    def uv_options(self) -> list[str]:
        """Return the options of uv's pip commands.

        Raises:
            EnvironmentProblem: `environment-build-failed` when the folder of wheels is gone.
        """
        return [] if self.wheel_folder is None else ["--offline", *self._folder_options(self.wheel_folder)]

    def pip_options(self) -> list[str]:
        """Return the options of pip's download command. Raises EnvironmentProblem as `uv_options`."""
        return [] if self.wheel_folder is None else self._folder_options(self.wheel_folder)

    def uv_variables(self, environment: Mapping[str, str], locks: Iterable[Path] = ()) -> dict[str, str]:
        """Return the variables of a uv process.

        Args:
            environment: the variables without regard to sources.
            locks: files that name what will be installed; those with a CUDA build add PyTorch's page of it.
        """
        result = self._variables(environment)
        if self.wheel_folder is not None or self.package_index:
            result["UV_NO_CONFIG"] = "1"
        mirror = self.package_index or ("" if "UV_INDEX_URL" in result else result.get("PIP_INDEX_URL", ""))
        if mirror:
            result.setdefault("UV_DEFAULT_INDEX", mirror)
        if self.network and (pages := self.pytorch_pages(locks)):
            known = result.get("UV_FIND_LINKS")
            result["UV_FIND_LINKS"] = ",".join([*([known] if known else []), *pages])
        return result

    def pip_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a pip process."""
        result = self._variables(environment)
        if self.package_index:
            # Empty: pip's configuration files name no second index then.
            result |= {"PIP_INDEX_URL": self.package_index, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
        # pip's own option, which its files may set, goes before the variables that every program reads.
        return result | ({"PIP_PROXY": self.proxy} if self.proxy else {})

    def pytorch_pages(self, locks: Iterable[Path]) -> list[str]:
        """Return the pages of PyTorch's index that list the CUDA builds that locks name.

        The page of one package and not the index: all other packages keep coming from the one package index.
        """
        builds = {build for lock in locks for build in _CUDA_BUILD.findall(lock.read_text(encoding="utf-8"))}
        return [f"{self.pytorch_index.rstrip('/')}/{build}/torch/" for build in sorted(builds)]

    def _variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        ignored = INDEX_VARIABLES if self.package_index or self.wheel_folder else frozenset[str]()
        ignored |= PROXY_VARIABLES if self.proxy else frozenset[str]()
        kept = {name: value for name, value in environment.items() if name.upper() not in ignored}
        addresses = {*INDEX_VARIABLES, *PROXY_VARIABLES}
        redact.note_passwords(*(word for name in kept if name.upper() in addresses for word in kept[name].split()))
        return kept | proxy_variables(self.proxy)

    @staticmethod
    def _folder_options(folder: Path) -> list[str]:
        if not folder.is_dir():
            raise EnvironmentProblem(
                "environment-build-failed",
                "{folder}: the folder of wheels from the settings does not exist.",
                hint="Connect the drive that holds it, or clear the setting “Folder of wheels”.",
                folder=folder,
            )
        # As an address: uv takes the commas of a plain path for separators.
        return ["--no-index", "--find-links", folder.as_uri()]


def lock_files(arguments: Iterable[str]) -> list[Path]:
    """Return the lock files among the arguments of a command."""
    return [Path(argument) for argument in arguments if argument.endswith(".txt") and Path(argument).is_file()]
