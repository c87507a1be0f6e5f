"""What operations there are: a declaration each, found in `kinds` by command line and window alike.

A new operation is a module in `kinds` with a `Kind` and, when it needs no training library, the function itself.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NewType

from tunesmith_core import devices, environments, files, hub_token, paths
from tunesmith_core.messages import Message
from tunesmith_core.operations import kinds
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.limits import Limits
from tunesmith_core.spec import RunSpec

AbsolutePath = NewType("AbsolutePath", str)
"""A path in a spec. The child has a working folder of its own, so the command line makes it absolute."""

RunFolder = NewType("RunFolder", str)
"""The folder of a run in a spec; on the command line also its name."""


class Place(enum.Enum):
    """Where the child process of an operation runs."""

    TRAINING = enum.auto()
    """In the training environment, with every library of a run."""
    SAME = enum.auto()
    """With the Python and the variables of whoever starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of operation.

    Attributes:
        name: stable; also its command on the command line.
        title: what it does, for the window's activity, such as "Checking the plan".
        function: "module:function", called in the child with the host and the spec; returns the answer (JSON values),
            raises a TunesmithError.
        program: instead of a function a module that is run with the spec's `arguments` and `--operation FOLDER`.
        spec: a dataclass of JSON values; or one with `to_dict` and `from_dict`.
        place: which Python runs it.
        help: of its command; "" for one that has no command of its own making.
        cut_short: what becomes of it when it is ended in the middle; "" where nobody would miss it.
        options: what the fields of the spec are, for the command's help.
        grace_s: how long it may take to end once it was asked to.
        limits: of its work on what others made; None where it does no such work.
        asks_hub: whether it talks to a model hub, for which it gets the proxy and the access token.
    """

    name: str
    title: str
    spec: type[Any]
    function: str = ""
    program: str = ""
    place: Place = Place.TRAINING
    help: str = ""
    cut_short: str = ""
    options: Mapping[str, Message] = field(default_factory=dict, hash=False)
    grace_s: float = 3.0
    limits: Limits | None = None
    asks_hub: bool = False

    def spec_values(self, spec: Any) -> dict[str, Any]:  # Any: of self.spec; JSON values
        """Return a spec as JSON values."""
        return dict(spec.to_dict()) if hasattr(spec, "to_dict") else dataclasses.asdict(spec)

    def spec_from(self, values: dict[str, Any]) -> Any:  # Any: JSON values; of self.spec
        """Return the spec of JSON values. Raises UserError or TypeError for others."""
        return self.spec.from_dict(values) if hasattr(self.spec, "from_dict") else self.spec(**values)

    def command(self, operation: Operation, spec: Any, python: Path | None = None) -> list[str]:  # Any: of self.spec
        """Return the command line of the child.

        Args:
            operation: its folder.
            spec: what is in it.
            python: the Python of another environment than the current one.

        Raises:
            EnvironmentProblem: `environment-missing`.
        """
        if self.program:
            return environments.own_command(self.program, *spec.arguments, "--operation", str(operation.path))
        if self.place is Place.SAME:
            return environments.own_command("tunesmith_core.operations.host", str(operation.path))
        arguments = ("operation", str(operation.path))
        if python:
            return environments.module_command(python, "tunesmith_engine", *arguments)
        return environments.engine_command(*arguments)

    def environment(self, spec: Any) -> dict[str, str]:  # Any: of self.spec
        """Return the variables of the child: ours, or those of an engine with the device of its run."""
        if self.place is Place.SAME:
            return dict(os.environ) | {paths.HOME_VARIABLE: str(paths.data_root())}
        if self.asks_hub:
            return environments.engine_environment(downloads=True) | hub_token.variables()
        if hasattr(spec, "answering"):
            run: Any = spec.answering()  # Any: a spec or what else stands under that name
        else:
            run = spec if isinstance(spec, RunSpec) else getattr(spec, "run", None)
        if not isinstance(run, RunSpec):
            return environments.engine_environment()
        downloads = bool(getattr(spec, "downloads", False))
        variables = environments.engine_environment(downloads=downloads)
        return variables | devices.device_of(run).environment()

    def load_function(self) -> Callable[[Any, Any], Any]:  # Any: host, spec, answer
        """Import what the child calls."""
        module, _, name = self.function.partition(":")
        function: Callable[[Any, Any], Any] = getattr(importlib.import_module(module), name)
        return function


@cache
def all_kinds() -> dict[str, Kind]:
    """Return every kind by its name."""
    modules = sorted(found.name for found in pkgutil.iter_modules(kinds.__path__))
    declared = (vars(importlib.import_module(f"{kinds.__name__}.{name}")).values() for name in modules)
    return {value.name: value for values in declared for value in list(values) if isinstance(value, Kind)}


def kind_of(operation: Operation) -> Kind:
    """Return the kind of the operation in a folder. Raises OSError, ValueError or KeyError for any other folder."""
    return all_kinds()[files.read_json(operation.path / "operation.json")["kind"]]
