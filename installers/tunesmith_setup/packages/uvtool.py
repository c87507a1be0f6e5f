"""Gets uv and runs it.

A bare Python may have no pip and no venv, so uv is looked for on the PATH, then downloaded by pip (checked by hash),
then by the pip of a temporary virtual environment. Never by a script from the web.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.environments import environment_python, scrubbed_environment
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.explain.failure import explained
from tunesmith_core.messages import Message
from tunesmith_core.redact import redact
from tunesmith_setup import attached
from tunesmith_setup.packages import system_libraries
from tunesmith_setup.packages.sources import Sources, lock_files
from tunesmith_setup.progress import Progress

OLDEST_VERSION = (0, 8, 0)
"""First uv whose options we use all."""

LOCAL_CAUSES = frozenset({"disk-full", "permission-or-antivirus", "path-too-long"})
"""Causes on this computer that uv's words tell; what is said about others is about models, not packages."""

PROGRAM = "uv.exe" if sys.platform == "win32" else "uv"
LOCKS = Path(__file__).resolve().parents[2] / "locks"
BUNDLED = Path(__file__).resolve().parents[3] / "tools" / PROGRAM
"""The uv that an installer brought with the program; a checkout has none."""


def own_cache() -> Path:
    """Return the download cache inside the data root."""
    return paths.cache_dir() / "uv"


def _environment(locks: Iterable[Path] = ()) -> dict[str, str]:
    environment = scrubbed_environment() | {"UV_PYTHON_DOWNLOADS": "never"}
    environment.setdefault("UV_CACHE_DIR", str(own_cache()))
    environment.setdefault("UV_HTTP_TIMEOUT", "180")
    if not sys.stderr.isatty():
        environment.setdefault("UV_NO_PROGRESS", "1")
    verify = ssl.get_default_verify_paths()
    if sys.platform == "win32" or verify.cafile or verify.capath:
        # A company's certificate is known to the system only; a system without any leaves uv its bundled ones.
        environment.setdefault("UV_SYSTEM_CERTS", "1")
    return Sources.chosen().uv_variables(environment, locks)


def _options(arguments: tuple[str, ...]) -> list[str]:
    """Return the arguments of a uv command with what the person's sources add."""
    return [*arguments, *(Sources.chosen().uv_options() if arguments[0] in ("pip", "venv") else [])]


@dataclass(frozen=True, slots=True)
class Uv:
    """A usable uv program."""

    executable: Path

    def run(self, *arguments: str) -> None:
        """Run a command and let its progress through to the person.

        Raises:
            EnvironmentProblem: `environment-build-failed`, or the cause that uv's last words tell.
        """
        command = [str(self.executable), *_options(arguments)]
        code, words = attached.run(command, _environment(lock_files(arguments)))
        if code != 0:
            raise _failure(arguments, code, words)

    def run_offline_first(self, *arguments: str) -> None:
        """Run a command with the download cache alone; only when that holds too little, with the network.

        Raises:
            EnvironmentProblem: as `run`.
        """
        command = [str(self.executable), "--offline", "--quiet", *arguments]
        environment = _environment(lock_files(arguments))
        if subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0:
            self.run(*arguments)

    def forget(self, packages: list[str]) -> None:
        """Remove packages from our own download cache; a cache that the person chose is left alone."""
        if own_cache().is_dir():
            command = [str(self.executable), "--quiet", "--cache-dir", str(own_cache()), "cache", "clean", *packages]
            subprocess.run(command, env=_environment(), capture_output=True, check=False)


def _failure(arguments: tuple[str, ...], code: int, words: str) -> TunesmithError:
    """Return why uv failed; its words are on the lines above already, and kept for a window that shows none."""
    failure = EnvironmentProblem(
        "environment-build-failed",
        "uv {arguments} ended with exit code {exit_code}. The lines above say why.",
        context=redact(words) or None,
        arguments=" ".join(arguments[:2]),
        exit_code=code,
    )
    found = explained(failure, words)
    return found if found.code in LOCAL_CAUSES else failure


def version_of(executable: Path) -> tuple[int, ...] | None:
    """Return the version a uv program tells, or None when it does not run."""
    try:
        answer = subprocess.run([str(executable), "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"uv (\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(int(number) for number in found.groups()) if found else None


def _is_usable(executable: Path) -> bool:
    version = version_of(executable)
    return version is not None and version >= OLDEST_VERSION


def obtain(progress: Progress) -> Uv:
    """Return the uv of the installed program, of the PATH or of the data root, else fetch it into the data root.

    Raises:
        EnvironmentProblem: `environment-build-failed` with the one command that helps.
    """
    fetched = paths.data_root() / "tools" / PROGRAM
    on_path = shutil.which("uv")
    for candidate in (BUNDLED, Path(on_path) if on_path else fetched, fetched):
        if _is_usable(candidate):
            progress.note(f"uv: {candidate}")
            return Uv(candidate)
    _fetch(fetched, progress)
    progress.note(Message("uv: {path}, downloaded from the package index", path=fetched))
    return Uv(fetched)


def _fetch(target: Path, progress: Progress) -> None:
    workspace = paths.tmp_dir() / f"uv-{os.getpid()}"
    try:
        for pip in _pips(workspace, progress):
            if _download(pip, workspace):
                _unpack(next(workspace.glob("uv-*.whl")), target)
                return
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    raise EnvironmentProblem(
        "environment-build-failed",
        "uv is not installed, and pip could not download it from the package index.",
        hint=Message(
            "Run: {python} -m pip install uv (on Debian and Ubuntu first: sudo apt-get install python3-pip "
            "python3-venv). Then run this command again.",
            python=sys.executable,
        ),
    )


def _pips(workspace: Path, progress: Progress) -> Iterator[list[str]]:
    """Yield commands that may run pip, the cheapest first."""
    yield [sys.executable, "-I", "-m", "pip"]
    venv = workspace / "venv"
    create = [sys.executable, "-I", "-m", "venv", str(venv)]
    for attempt in range(2):
        if subprocess.run(create, capture_output=True, check=False).returncode == 0:
            yield [str(environment_python(venv)), "-I", "-m", "pip"]
            return
        if attempt == 0 and not system_libraries.apt_install(("python3-venv",), progress):
            return


def _download(pip: list[str], folder: Path) -> bool:
    files.private_folder(folder)
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
    sources = Sources.chosen()
    command = [*pip, "download", *options, *sources.pip_options(), "--dest", str(folder), "-r", str(LOCKS / "uv.txt")]
    environment = sources.pip_variables(scrubbed_environment())
    result = subprocess.run(command, env=environment, capture_output=True, check=False)
    return result.returncode == 0


def _unpack(wheel: Path, target: Path) -> None:
    files.private_folder(target.parent)
    staging = target.with_name(f"{target.name}.{os.getpid()}")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(f".data/scripts/{PROGRAM}"))
        staging.write_bytes(archive.read(name))
    staging.chmod(0o755)
    files.replace(staging, target)
