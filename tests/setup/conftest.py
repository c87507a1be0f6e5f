"""Fixtures of the installer's tests: recorded progress, scripted programs, and tiny wheels instead of gigabytes."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import io
import os
import re
import shutil
import stat
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tunesmith_core.environments import TRAINING_POINTER
from tunesmith_setup.environments import envs, repair
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.packages import scratch, uvtool
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.progress import Progress

LARGE = "".join(f"value_{number} = {number}\n" for number in range(2000))
"""Text of a file that is worth damaging."""

PYTHON = sys.executable
"""The Python of scripted programs, whatever a test makes of sys.executable."""


class RecordedProgress(Progress):
    """Keeps the lines instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def line(self, text: str = "") -> None:
        self.lines.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def progress() -> RecordedProgress:
    return RecordedProgress()


@pytest.fixture
def interpreter() -> Interpreter:
    """The Python that runs the tests."""
    base = getattr(sys, "_base_executable", sys.executable)
    return Interpreter(Path(base), sys.version_info[:2])


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH folder for scripted programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(path: Path, body: str) -> Path:
    """Write an executable Python script; `args` holds its arguments. On Windows its name ends in .exe."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"import os, sys\nargs = sys.argv[1:]\n{body}\n"
    if os.name == "nt":
        # What pip makes of a command: a small program, behind it the Python's path, behind that an archive to run.
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("__main__.py", text)
        launcher = importlib.resources.files("pip._vendor.distlib").joinpath("t64.exe").read_bytes()
        path = path if path.suffix == ".exe" else path.with_name(f"{path.name}.exe")
        path.write_bytes(launcher + f"#!{PYTHON}\r\n".encode() + archive.getvalue())
        return path
    path.write_text(f"#!{PYTHON}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def wheel(folder: Path, name: str, version: str, contents: dict[str, str]) -> str:
    """Build a wheel that any Python can install, and return the lock lines that pin it.

    Args:
        folder: where the wheel file goes.
        name: package name.
        version: its version.
        contents: text by path inside the wheel.
    """
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    texts = contents | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in texts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    rows.append(f"{info}/RECORD,,")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in (texts | {f"{info}/RECORD": "\n".join(rows) + "\n"}).items():
            archive.writestr(path, text)
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(target.read_bytes()).hexdigest()}\n"


@pytest.fixture
def real_uv() -> Path:
    """The real uv; the test runner puts it on the PATH."""
    found = shutil.which("uv")
    assert found, "run the tests with: python3 installers/bootstrap.py test"
    return Path(found)


class TinyIndex:
    """A package index of wheels in a folder, on this computer's loopback address.

    Its address stays the same for all tests, because uv's download cache belongs to an address.

    Attributes:
        folder: where `wheel` puts the wheels.
        requests: the paths that were asked for.
        cut: names of wheels whose download breaks off in the middle.
        reachable: whether it answers.
        ranges: the parts that were asked for, None for the whole, by name of the wheel.
        knows_ranges: whether it sends parts of a wheel.
        tells_hashes: whether its pages tell the hashes of wheels.
    """

    def __init__(self) -> None:
        self.open(Path("nowhere"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def open(self, folder: Path) -> None:
        """Answer from now on, with the wheels of a folder."""
        self.folder, self.reachable = folder, True
        self.requests: list[str] = []
        self.cut: set[str] = set()
        self.ranges: dict[str, list[str | None]] = {}
        self.knows_ranges = True
        self.tells_hashes = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/simple"

    def link(self, path: Path) -> str:
        """Return the link to a wheel on a page."""
        digest = f"#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}" if self.tells_hashes else ""
        return f'<a href="/wheels/{path.name}{digest}">{path.name}</a>'

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not index.reachable:
                    return
                index.requests.append(self.path)
                name = self.path.strip("/").rpartition("/")[2]
                if self.path.startswith("/simple/"):
                    wheels = index.folder.glob(f"{name.replace('-', '_')}-*.whl")
                    body = "".join(map(index.link, wheels)).encode()
                else:
                    body = (index.folder / name).read_bytes()
                    index.ranges.setdefault(name, []).append(self.headers["Range"])
                start, code = 0, 200 if body else 404
                wanted = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
                if wanted and index.knows_ranges and not self.path.startswith("/simple/"):
                    start = int(wanted[1])
                    body, code = body[start:], 206 if start < len(body) else 416
                self.send_response(code)
                self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/zip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if name in index.cut else body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler

    def close(self) -> None:
        """Stop answering: from now on connections break."""
        self.reachable = False

    def end(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="session")
def index_server() -> Iterator[TinyIndex]:
    """The server of all tests."""
    index = TinyIndex()
    yield index
    index.end()


@pytest.fixture
def tiny_index(tmp_path: Path, index_server: TinyIndex, monkeypatch: pytest.MonkeyPatch) -> TinyIndex:
    """The only package index that uv knows."""
    index_server.open(tmp_path / "wheels")
    _know_only(index_server, monkeypatch)
    return index_server


def _know_only(index: TinyIndex, patch: pytest.MonkeyPatch) -> None:
    """Let uv know no other index."""
    for name in ("UV_CACHE_DIR", "UV_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE", "PIP_INDEX_URL"):
        patch.delenv(name, raising=False)
    patch.setenv("UV_DEFAULT_INDEX", index.address)
    patch.setenv("UV_HTTP_RETRIES", "0")
    patch.setenv("UV_NO_PROGRESS", "1")


def _tiny_environment(folder: Path, interpreter: Interpreter) -> Environment:
    """Return what a tiny training environment should be; wheels and lock are below `folder`."""
    lock = folder / "locks" / f"tiny-linux-{interpreter.tag}.txt"
    return Environment("train-tiny", interpreter, (lock,), ("torch", "tiny_tools"), 1000, TRAINING_POINTER)


@pytest.fixture(scope="session")
def tiny_template(tmp_path_factory: pytest.TempPathFactory, index_server: TinyIndex) -> Path:
    """A folder with wheels, lock, and a data root on which a tiny training environment was built from them."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "home").mkdir()
    environment = _tiny_environment(folder, Interpreter(Path(sys.executable).resolve(), sys.version_info[:2]))
    version = "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n"
    torch = {"torch/__init__.py": "", "torch/version.py": version, "torch/lib/big.py": LARGE}
    tools = {"tiny_tools/__init__.py": "value = 1\n", "tiny_tools/main.py": "def main(): pass\n"}
    script = {"tiny_tools-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny-tool = tiny_tools.main:main\n"}
    environment.locks[0].parent.mkdir()
    environment.locks[0].write_text(
        wheel(folder / "wheels", "torch", "2.6.0", torch)
        + wheel(folder / "wheels", "tiny-tools", "1.0", tools | script)
        + wheel(folder / "wheels", "tiny-data", "3.1", {"tiny_data/__init__.py": "", "tiny_data/rows.txt": LARGE})
    )
    uv = shutil.which("uv")
    assert uv, "run the tests with: python3 installers/bootstrap.py test"
    index_server.open(folder / "wheels")
    with pytest.MonkeyPatch.context() as patch:
        _know_only(index_server, patch)
        patch.setenv("TUNESMITH_HOME", str(folder / "home"))
        if os.name == "nt":
            patch.setenv("TUNESMITH_WORK", str(folder / "home"))
        envs.build(environment, Uv(Path(uv)), RecordedProgress())
    return folder


@pytest.fixture
def tiny_training(
    home: Path, tmp_path: Path, interpreter: Interpreter, tiny_template: Path, monkeypatch: pytest.MonkeyPatch
) -> Environment:
    """What a tiny training environment should be; its lock is among the program's locks, its wheels in the index."""
    for name in ("wheels", "locks"):
        shutil.copytree(tiny_template / name, tmp_path / name, dirs_exist_ok=True)
    environment = _tiny_environment(tmp_path, interpreter)
    monkeypatch.setattr(scratch, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(repair, "environment_of", lambda name, python: environment)
    return environment


@pytest.fixture
def built_training(
    home: Path,
    tiny_template: Path,
    tiny_training: Environment,
    tiny_index: TinyIndex,
    real_uv: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The folder of a tiny training environment; its wheels are in the download cache too."""
    shutil.copytree(tiny_template / "home", home, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setattr(uvtool, "obtain", lambda progress: Uv(real_uv))
    assert repair.is_sound(tiny_training.folder)
    return tiny_training.folder
