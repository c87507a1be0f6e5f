"""Every download honours the settings; passwords in addresses reach uv and pip and nobody else."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.setup.conftest import RecordedProgress, TinyIndex, script, wheel
from tunesmith_core.environments import environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.settings import PYTORCH_INDEX, SettingsFile
from tunesmith_setup.packages import sources, system_libraries, uvtool
from tunesmith_setup.packages.sources import Sources
from tunesmith_setup.packages.uvtool import Uv

MIRROR = "https://me:hunter2@mirror.example/simple"
PROXY = "http://me:hunter2@proxy.example:8080"
SHELL = {
    "UV_INDEX_URL": "https://old.example",
    "UV_EXTRA_INDEX_URL": "https://extra.example",
    "UV_FIND_LINKS": "/their/wheels",
    "PIP_INDEX_URL": "https://pip.example/simple",
    "PIP_EXTRA_INDEX_URL": "https://extra.example",
    "https_proxy": "http://theirs.example:1",
    "NO_PROXY": "localhost",
    "LANG": "C",
}
CUDA_LOCK = "numpy==2.0 \\\n    --hash=sha256:aa\ntorch==2.6.0+cu124 \\\n    --hash=sha256:bb\n"


@pytest.fixture
def settings(home: Path) -> Callable[..., None]:
    """Return a function that saves settings."""

    def save(**values: str) -> None:
        file = SettingsFile()
        file.change(**values)
        file.save()

    return save


@pytest.fixture
def cuda_lock(tmp_path: Path) -> Path:
    path = tmp_path / "cu124-win-py312.txt"
    path.write_text(CUDA_LOCK)
    return path


def test_without_settings_the_persons_own_variables_count(home: Path) -> None:
    chosen = Sources.chosen()
    assert chosen == Sources("", PYTORCH_INDEX, "", None)
    assert chosen.uv_variables(SHELL) == SHELL
    assert chosen.pip_variables(SHELL) == SHELL
    only_pip = {"PIP_INDEX_URL": "https://pip.example/simple"}
    assert chosen.uv_variables(only_pip) == {**only_pip, "UV_DEFAULT_INDEX": "https://pip.example/simple"}
    own = {**only_pip, "UV_DEFAULT_INDEX": "https://own.example"}
    assert chosen.uv_variables(own) == own
    assert chosen.uv_variables({}) == {}
    assert chosen.uv_options() == chosen.pip_options() == []


def test_a_chosen_index_is_the_only_one(settings: Callable[..., None]) -> None:
    settings(package_index=MIRROR)
    kept = {name: SHELL[name] for name in ("https_proxy", "NO_PROXY", "LANG")}
    assert Sources.chosen().uv_variables(SHELL) == kept | {"UV_DEFAULT_INDEX": MIRROR, "UV_NO_CONFIG": "1"}
    pip = {"PIP_INDEX_URL": MIRROR, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    assert Sources.chosen().pip_variables(SHELL) == kept | pip


def test_a_chosen_proxy_is_the_only_one(settings: Callable[..., None]) -> None:
    settings(proxy=PROXY)
    for variables in (Sources.chosen().uv_variables(SHELL), Sources.chosen().pip_variables(SHELL)):
        proxies = {value for name, value in variables.items() if name.upper() in sources.PROXY_VARIABLES}
        assert proxies == {PROXY}
        assert variables["NO_PROXY"] == "localhost"
        assert variables["UV_INDEX_URL"] == "https://old.example"
    assert Sources.chosen().pip_variables(SHELL | {"PIP_PROXY": "http://theirs.example:1"})["PIP_PROXY"] == PROXY


def test_only_a_lock_with_a_cuda_build_needs_pytorchs_index(
    settings: Callable[..., None], cuda_lock: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "cpu.txt"
    plain.write_text(CUDA_LOCK.replace("+cu124", ""))
    page = "https://download.pytorch.org/whl/cu124/torch/"
    assert Sources.chosen().uv_variables({}, [plain]) == {}
    assert Sources.chosen().uv_variables({}, [plain, cuda_lock, cuda_lock]) == {"UV_FIND_LINKS": page}
    with_theirs = Sources.chosen().uv_variables(SHELL, [cuda_lock])
    assert with_theirs["UV_FIND_LINKS"] == f"/their/wheels,{page}"
    settings(pytorch_index="https://me:hunter2@mirror.example/pytorch/")
    assert Sources.chosen().uv_variables({}, [cuda_lock]) == {
        "UV_FIND_LINKS": "https://me:hunter2@mirror.example/pytorch/cu124/torch/"
    }
    settings(pytorch_index="")
    assert Sources.chosen().uv_variables({}, [cuda_lock]) == {"UV_FIND_LINKS": page}


def test_a_folder_of_wheels_replaces_every_index(
    settings: Callable[..., None], cuda_lock: Path, tmp_path: Path
) -> None:
    settings(wheel_folder=str(tmp_path))
    chosen = Sources.chosen()
    assert not chosen.network
    kept = {name: SHELL[name] for name in ("https_proxy", "NO_PROXY", "LANG")}
    assert chosen.uv_variables(SHELL, [cuda_lock]) == kept | {"UV_NO_CONFIG": "1"}
    assert chosen.pip_variables(SHELL) == kept
    assert chosen.uv_options() == ["--offline", "--no-index", "--find-links", tmp_path.as_uri()]
    assert chosen.pip_options() == ["--no-index", "--find-links", tmp_path.as_uri()]


def test_a_folder_of_wheels_that_is_gone_is_told(settings: Callable[..., None], tmp_path: Path) -> None:
    settings(wheel_folder=str(tmp_path / "stick"))
    with pytest.raises(EnvironmentProblem, match="stick: the folder of wheels") as caught:
        Uv(Path("/nowhere/uv")).run("pip", "sync", "lock.txt")
    assert caught.value.code == "environment-build-failed"
    assert "Folder of wheels" in caught.value.hint


def recorder(tmp_path: Path, code: int = 0) -> tuple[Path, Path]:
    """A program that writes its arguments and variables down; returns it and that file."""
    calls = tmp_path / "calls.jsonl"
    body = f"import json; open({str(calls)!r}, 'a').write(json.dumps([args, dict(os.environ)]) + '\\n')\n"
    chatter = "sys.stderr.write('failed: http://me:hunter2@mirror.example' + chr(10))\n"
    return script(tmp_path / "program", f"{body}{chatter}sys.exit({code})"), calls


def test_uv_gets_passwords_in_variables_and_no_message_repeats_them(
    settings: Callable[..., None], cuda_lock: Path, tmp_path: Path
) -> None:
    settings(package_index=MIRROR, proxy=PROXY, pytorch_index="https://me:hunter2@mirror.example/pytorch")
    program, calls = recorder(tmp_path, code=2)
    with pytest.raises(EnvironmentProblem) as caught:
        Uv(program).run_offline_first("pip", "sync", str(cuda_lock))
    assert "failed: http://<credentials>@mirror.example" in str(caught.value.context)
    assert "hunter2" not in json.dumps(caught.value.to_dict())
    for line in calls.read_text().splitlines():
        arguments, variables = json.loads(line)
        assert "hunter2" not in " ".join(arguments)
        assert variables["UV_DEFAULT_INDEX"] == MIRROR
        assert variables["HTTPS_PROXY"] == PROXY
        assert variables["UV_FIND_LINKS"] == "https://me:hunter2@mirror.example/pytorch/cu124/torch/"


def test_the_pip_that_fetches_uv_honours_the_settings(
    settings: Callable[..., None],
    programs: Path,
    progress: RecordedProgress,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings(package_index=MIRROR, proxy=PROXY)
    program, calls = recorder(tmp_path, code=1)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(system_libraries, "apt_install", lambda *_: False)
    with pytest.raises(EnvironmentProblem, match="could not download it") as caught:
        uvtool.obtain(progress)
    assert "hunter2" not in json.dumps(caught.value.to_dict()) + progress.text
    arguments, variables = json.loads(calls.read_text().splitlines()[0])
    assert "download" in arguments
    assert "hunter2" not in " ".join(arguments)
    assert (variables["PIP_INDEX_URL"], variables["https_proxy"]) == (MIRROR, PROXY)
    settings(package_index="", proxy="", wheel_folder=str(tmp_path))
    calls.unlink()
    with pytest.raises(EnvironmentProblem):
        uvtool.obtain(progress)
    arguments, variables = json.loads(calls.read_text().splitlines()[0])
    assert arguments[arguments.index("--no-index") :][:3] == ["--no-index", "--find-links", tmp_path.as_uri()]


class Answering:
    """A web server on the loopback address that answers with what a function returns for a path, and notes headers."""

    def __init__(self, answer: Callable[[str], bytes | None]) -> None:
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        answering = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answering.headers.append(dict(self.headers))
                answering.paths.append(self.path)
                body = answer(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def new_environment(home: Path, tmp_path: Path, real_uv: Path) -> Path:
    """An empty environment; returns its Python."""
    folder = tmp_path / "environment"
    command = [str(real_uv), "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return environment_python(folder)


def sync(uv: Uv, python: Path, lock: Path) -> None:
    """Install a lock as the installer does."""
    options = ["--quiet", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
    uv.run_offline_first("pip", "sync", *options, "--python", str(python), str(lock))


def answer_of(python: Path, statement: str) -> str:
    command = [str(python), "-I", "-c", statement]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def pytorch(tmp_path: Path) -> Iterator[Answering]:
    """A mirror of PyTorch's index with one CUDA build, whose page lists other packages nowhere."""
    folder = tmp_path / "pytorch"
    name = "torch-2.6.0+cu124-py3-none-any.whl"

    def answer(path: str) -> bytes | None:
        if path == "/whl/cu124/torch/":
            return f'<a href="/whl/cu124/{name.replace("+", "%2B")}">{name}</a>'.encode()
        return (folder / name).read_bytes() if unquote(path) == f"/whl/cu124/{name}" else None

    server = Answering(answer)
    yield server
    server.close()


def test_the_cuda_build_comes_from_pytorchs_index_and_all_else_from_the_package_index(
    settings: Callable[..., None],
    tiny_index: TinyIndex,
    pytorch: Answering,
    new_environment: Path,
    real_uv: Path,
    tmp_path: Path,
) -> None:
    lock = tmp_path / "cu124.txt"
    wheel(tiny_index.folder, "torch", "2.6.0", {"torch.py": "build = 'cpu'"})
    pins = wheel(tiny_index.folder, "tiny", "1.0", {"tiny.py": "x = 1"})
    lock.write_text(pins + wheel(tmp_path / "pytorch", "torch", "2.6.0+cu124", {"torch.py": "build = 'cuda'"}))
    settings(pytorch_index=f"http://me:hunter2@127.0.0.1:{pytorch.port}/whl")
    sync(Uv(real_uv), new_environment, lock)
    assert answer_of(new_environment, "import tiny, torch; print(torch.build)") == "cuda"
    assert set(pytorch.paths) == {"/whl/cu124/torch/", "/whl/cu124/torch-2.6.0%2Bcu124-py3-none-any.whl"}
    expected = "Basic " + base64.b64encode(b"me:hunter2").decode()
    assert expected in [headers.get("authorization") or headers.get("Authorization") for headers in pytorch.headers]


def test_downloads_go_through_the_proxy(
    settings: Callable[..., None], tiny_index: TinyIndex, new_environment: Path, real_uv: Path, tmp_path: Path
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(wheel(tiny_index.folder, "tiny", "1.0", {"tiny.py": "x = 7"}))
    origin = tiny_index.address.removesuffix("/simple")

    def fetch(address: str) -> bytes:
        assert urlsplit(address).hostname == "index.invalid"
        with urllib.request.urlopen(origin + urlsplit(address).path) as answer:
            return bytes(answer.read())

    proxy = Answering(fetch)
    try:
        settings(proxy=f"http://me:hunter2@127.0.0.1:{proxy.port}", package_index="http://index.invalid/simple")
        sync(Uv(real_uv), new_environment, lock)
    finally:
        proxy.close()
    assert answer_of(new_environment, "import tiny; print(tiny.x)") == "7"
    assert [urlsplit(path).path for path in proxy.paths] == ["/simple/tiny/", "/wheels/tiny-1.0-py3-none-any.whl"]
    assert {(h.get("proxy-authorization") or h.get("Proxy-Authorization")) for h in proxy.headers} == {
        "Basic " + base64.b64encode(b"me:hunter2").decode()
    }


def without_network(tmp_path: Path, uv: Path) -> Path:
    """Return a uv that has no network at all, or skip where this system allows nobody to take it away."""
    command = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces here")
    body = f"os.execvp('unshare', {[*command, str(uv)]!r} + args)"
    return script(tmp_path / "uv-without-network", body)


def test_a_folder_of_wheels_is_all_that_is_needed(
    settings: Callable[..., None],
    new_environment: Path,
    real_uv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("UV_CACHE_DIR", "UV_FIND_LINKS", "UV_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    lock, folder = tmp_path / "lock.txt", tmp_path / "wheels, and ünicode"
    pins = wheel(folder, "tiny", "1.0", {"tiny.py": "x = 3"})
    lock.write_text(pins + wheel(folder, "torch", "2.6.0+cu124", {"torch.py": "build = 'cuda'"}))
    uv = Uv(without_network(tmp_path, real_uv))
    with pytest.raises(EnvironmentProblem):
        sync(uv, new_environment, lock)
    settings(wheel_folder=str(folder), package_index="http://index.invalid/simple")
    sync(uv, new_environment, lock)
    assert answer_of(new_environment, "import tiny, torch; print(tiny.x, torch.build)") == "3 cuda"


def test_a_substituted_wheel_in_the_folder_is_refused(
    settings: Callable[..., None], new_environment: Path, real_uv: Path, tmp_path: Path
) -> None:
    lock, folder = tmp_path / "lock.txt", tmp_path / "wheels"
    lock.write_text(wheel(folder, "tiny", "1.0", {"tiny.py": "x = 3"}))
    wheel(folder, "tiny", "1.0", {"tiny.py": "x = 'substituted'"})
    settings(wheel_folder=str(folder))
    with pytest.raises(EnvironmentProblem):
        sync(Uv(real_uv), new_environment, lock)
    assert answer_of(new_environment, "import importlib.util as u; print(u.find_spec('tiny'))") == "None"
