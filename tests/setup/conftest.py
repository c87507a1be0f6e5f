"""Fixtures of the installer's tests: recorded progress, scripted programs, and tiny wheels instead of gigabytes."""

from __future__ import annotations

import base64
import hashlib
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
from tunesmith_setup import envs, repair, scratch, uvtool
from tunesmith_setup.envs import Environment
from tunesmith_setup.interpreters import Interpreter
from tunesmith_setup.progress import Progress
from tunesmith_setup.uvtool import Uv

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
    """Write an executable Python script; `args` holds its arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{PYTHON}\nimport os, sys\nargs = sys.argv[1:]\n{body}\n")
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

    Attributes:
        folder: where `wheel` puts the wheels.
        requests: the paths that were asked for.
        cut: names of wheels whose download breaks off in the middle.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.cut: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/simple"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requests.append(self.path)
                name = self.path.strip("/").rpartition("/")[2]
                if self.path.startswith("/simple/"):
                    wheels = index.folder.glob(f"{name.replace('-', '_')}-*.whl")
                    body = "".join(f'<a href="/wheels/{path.name}">{path.name}</a>' for path in wheels).encode()
                else:
                    body = (index.folder / name).read_bytes()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/zip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if name in index.cut else body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler

    def close(self) -> None:
        """Stop answering: from now on the address is unreachable."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def tiny_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyIndex]:
    """The only package index that uv knows."""
    index = TinyIndex(tmp_path / "wheels")
    for name in ("UV_CACHE_DIR", "UV_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.address)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    yield index
    index.close()


@pytest.fixture
def tiny_training(
    home: Path, tmp_path: Path, interpreter: Interpreter, tiny_index: TinyIndex, monkeypatch: pytest.MonkeyPatch
) -> Environment:
    """What a tiny training environment should be; its lock is among the program's locks."""
    monkeypatch.setenv("UV_NO_PROGRESS", "1")
    locks = tmp_path / "locks"
    locks.mkdir()
    lock = locks / f"tiny-linux-{interpreter.tag}.txt"
    version = "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n"
    torch = {"torch/__init__.py": "", "torch/version.py": version, "torch/lib/big.py": LARGE}
    tools = {"tiny_tools/__init__.py": "value = 1\n", "tiny_tools/main.py": "def main(): pass\n"}
    script = {"tiny_tools-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny-tool = tiny_tools.main:main\n"}
    lock.write_text(
        wheel(tiny_index.folder, "torch", "2.6.0", torch)
        + wheel(tiny_index.folder, "tiny-tools", "1.0", tools | script)
        + wheel(tiny_index.folder, "tiny-data", "3.1", {"tiny_data/__init__.py": "", "tiny_data/rows.txt": LARGE})
    )
    environment = Environment("train-tiny", interpreter, (lock,), ("torch", "tiny_tools"), 1000, TRAINING_POINTER)
    monkeypatch.setattr(scratch, "LOCKS", locks)
    monkeypatch.setattr(repair, "environment_of", lambda name, python: environment)
    return environment


@pytest.fixture
def built_training(
    tiny_training: Environment, real_uv: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of a tiny training environment."""
    monkeypatch.setattr(uvtool, "obtain", lambda progress: Uv(real_uv))
    envs.build(tiny_training, Uv(real_uv), progress)
    assert repair.is_sound(tiny_training.folder)
    return tiny_training.folder
