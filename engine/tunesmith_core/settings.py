"""The person's settings: declared, typed, one JSON file that window, command line and doctor read alike.

A damaged file never stops a start: its last good copy serves, else the defaults, and what happened is told once. Before
it is written again, it is set aside.
Values of a newer version are kept as they are, so that going back and forth between versions loses nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tunesmith_core import files, paths, redact
from tunesmith_core.declared import Declaration, FieldProblem, declared, iter_declarations, read_section
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import Message, joined, system_language

Values = dict[str, Any]  # Any: JSON values

PYTORCH_INDEX = "https://download.pytorch.org/whl"
"""PyTorch's own wheel index: one folder for each build, such as cu124."""

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

LOCK_WAIT_S = 5.0
"""How long a save waits for another process that writes the file."""

MIGRATIONS: tuple[Callable[[Values], Values], ...] = ()
"""The n-th function (from 1) turns the values of version n into those of version n + 1."""


def _index_rule(text: str) -> str | None:
    """Say what is wrong with the address of an index; its text, which may hold a password, is not repeated."""
    return _address_problem(text, ("https", "http")) if text else None


def _proxy_rule(text: str) -> str | None:
    problem = _address_problem(text, PROXY_SCHEMES) if text else None
    if problem or urlsplit(text).path in ("", "/"):
        return problem
    return Message("must end with the port, as in http://proxy.example:8080")


def _folder_rule(text: str) -> str | None:
    return None if not text or Path(text).is_absolute() else Message("must be the full path of a folder")


def _address_problem(text: str, schemes: tuple[str, ...]) -> str | None:
    try:
        parts = urlsplit(text)
        complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not text.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        return Message("must begin with {schemes}", schemes=" / ".join(f"{scheme}://" for scheme in schemes))
    if not complete:
        return Message("must contain a host name and a valid port number, if any")
    if any(character.isspace() or not character.isprintable() for character in text):
        return Message("must not contain spaces")
    return Message("must not contain ? or #") if parts.query or parts.fragment else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that is asked once for all runs; what belongs to one run is in its RunSpec."""

    language: str = declared(
        "system",
        label="Language",
        meaning="Of the window, the commands and what they write.",
        choices=("system", "en", "zh_CN"),
    )
    theme: str = declared(
        "system",
        label="Appearance",
        meaning="Light, dark or high contrast, or whatever your desktop uses.",
        choices=("system", "light", "dark", "high_contrast"),
    )
    font_scale_percent: int = declared(
        100,
        label="Text size",
        meaning="Scales all text, in addition to the system's own scaling.",
        unit="%",
        minimum=80,
        maximum=200,
    )
    keep_awake: bool = declared(
        True,
        label="Keep the computer awake",
        meaning="Prevents sleep while a run is in progress and the window is open.",
    )
    notify_run_end: bool = declared(
        True,
        label="Notify when a run ends",
        meaning="Shows a desktop notification when a run finishes, stops or fails.",
    )
    confirm_close: bool = declared(
        True,
        label="Ask before closing during a run",
        meaning="When off, closing the window leaves the run in the background without asking.",
    )
    package_index: str = declared(
        "",
        label="Package index",
        meaning="Mirror for Python packages. Leave empty to use this computer's pip and uv settings.",
        rule=_index_rule,
    )
    pytorch_index: str = declared(
        PYTORCH_INDEX,
        label="PyTorch index",
        meaning="PyTorch's wheel index, or a mirror with the same folders.",
        rule=_index_rule,
    )
    proxy: str = declared(
        "",
        label="Proxy",
        meaning="Proxy for all downloads. Leave empty to use this computer's settings. A password in the address is "
        "saved in a file that only your account can read.",
        rule=_proxy_rule,
    )
    hub: str = declared(
        "huggingface",
        label="Model hub",
        meaning="Where models are searched for and downloaded from.",
        choices=("huggingface", "modelscope"),
    )
    hub_endpoint: str = declared(
        "",
        label="Address of the model hub",
        meaning="For a mirror of the hub. Leave empty for the hub's own address.",
        rule=_index_rule,
    )
    offline: bool = declared(
        False,
        label="Work offline",
        meaning="Nothing is searched for or downloaded from the model hub.",
    )
    wheel_folder: str = declared(
        "",
        label="Folder of wheels",
        meaning="Installs packages from this folder of wheel files. Nothing is downloaded.",
        rule=_folder_rule,
    )


def iter_settings() -> list[tuple[str, object, object, Declaration]]:
    """Return name, type, default and Declaration of every setting, in the order of the settings page."""
    return list(iter_declarations(Settings))


def settings_path() -> Path:
    """Return the place of the settings file."""
    return paths.config_dir() / "settings.json"


class SettingsFile:
    """The settings in memory and on disk.

    Attributes:
        values: the settings in force.
        problem: what was wrong with the file when it was loaded, or None.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or settings_path()
        self.values = Settings()
        self.problem: TunesmithError | None = None
        self._version = current_version()
        self._unknown: Values = {}
        self._found = False
        self._changed: set[str] = set()
        self._memory = threading.Lock()
        self._load()

    @property
    def last_good_path(self) -> Path:
        """The copy that was written together with the file."""
        return self.path.with_name("settings.last-good.json")

    def change(self, **values: object) -> None:
        """Set values in memory; `save` makes them last.

        Raises:
            UserError: `setting-invalid` when a name is unknown or a value does not fit; nothing is changed then.
        """
        problems: list[FieldProblem] = []
        with self._memory:
            changed = read_section(Settings, dataclasses.asdict(self.values) | values, "settings", problems)
            if problems:
                raise TunesmithError("setting-invalid", joined([problem.message for problem in problems], ", "))
            self._set(changed)
            self._changed |= values.keys()

    def save(self) -> None:
        """Write what was changed here, beside what others have written since the file was read.

        File and last good copy are each written atomically; `values` then holds what others changed, too.

        Raises:
            OSError: as the file system says; a later save tries again.
        """
        with FileLock(self.path.with_suffix(".lock")).waiting(LOCK_WAIT_S):
            there = SettingsFile(self.path)
            if there.problem:
                self._set_aside()
            base = there if there._found else self
            with self._memory:
                ours = self._changed
                merged = self._with_ours(base.values)
                self._changed = set()
            content = {"version": base._version, **base._unknown, **dataclasses.asdict(merged)}
            try:
                files.atomic_write_json(self.path, content)
                files.atomic_write_json(self.last_good_path, content)
            except OSError:
                with self._memory:
                    self._changed |= ours
                raise
        with self._memory:
            self.values = self._with_ours(merged)

    def refresh(self) -> None:
        """Take what others have written since the file was read; what was changed here stays, saved or not.

        A file that can't be read in full changes nothing.
        """
        there = SettingsFile(self.path)
        if there._found and there.problem is None:
            with self._memory:
                self._set(self._with_ours(there.values))

    def _set(self, values: Settings) -> None:
        self.values = values
        redact.note_passwords(values.proxy, values.package_index, values.pytorch_index, values.hub_endpoint)

    def _set_aside(self) -> None:
        """Keep what the file held: a person may have written it by hand."""
        if os.path.lexists(self.path):
            files.replace(self.path, self.path.with_name("settings.damaged.json"))

    def _with_ours(self, others: Settings) -> Settings:
        return dataclasses.replace(others, **{name: getattr(self.values, name) for name in self._changed})

    def _load(self) -> None:
        for path in (self.path, self.last_good_path):
            try:
                self._take(files.read_json(path))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                self.problem = self.problem or _damaged(path, error)
                continue
            return

    def _take(self, content: object) -> None:
        if not isinstance(content, dict):
            raise ValueError(Message("the file contains no JSON object"))  # noqa: TRY004 - treated as damage like any other
        values = dict(content)
        version = values.pop("version", None)
        if not isinstance(version, int) or version < 1:
            raise ValueError(Message("the file has no version"))
        for migrate in MIGRATIONS[version - 1 :]:
            values = migrate(values)
        known = {field.name for field in dataclasses.fields(Settings)}
        self._found = True
        self._version = max(version, current_version())
        self._unknown = {name: value for name, value in values.items() if name not in known and _is_json(value)}
        problems: list[FieldProblem] = []
        self._set(read_section(Settings, {name: values[name] for name in known & values.keys()}, "settings", problems))
        if problems:
            self.problem = _damaged(self.path, joined([problem.message for problem in problems], ", "))


def _is_json(value: object) -> bool:
    """Return whether a value that was read can be written: Python reads numbers that JSON lacks."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def language_in_force() -> str:
    """Return the language that was chosen, or the system's: "en" or "zh_CN"."""
    chosen = SettingsFile().values.language
    return system_language() if chosen == "system" else chosen


def current_version() -> int:
    """Return the version that this program writes."""
    return len(MIGRATIONS) + 1


def _damaged(path: Path, cause: object) -> TunesmithError:
    if isinstance(cause, json.JSONDecodeError):
        cause = Message(
            "line {line}, column {column}: {msg}", line=cause.lineno, column=cause.colno, msg=Message(cause.msg)
        )
    elif not isinstance(cause, Message):
        cause = Message(str(cause))
    return TunesmithError("settings-damaged", "{path}: {cause}.", path=path, cause=cause)
