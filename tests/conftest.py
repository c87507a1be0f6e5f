"""Fixtures for every test: a data root of its own, a scripted engine, and guards against noise and leftovers."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import shutil
import signal
import struct
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.windows import linux_only
from tunesmith_core import messages, redact, settings
from tunesmith_core.spec import RunSpec

# A busy computer takes its time for an example.
hypothesis.settings.register_profile("any computer", deadline=None)
hypothesis.settings.load_profile("any computer")

TESTS = Path(__file__).resolve().parent
OUR_LOGGERS = ("tunesmith_core", "tunesmith_engine", "tunesmith_gui", "tunesmith_setup", "tunesmith_assets")
RELAYING_LOGGER = "tunesmith_engine.preparation"
"""It repeats what libraries said in the helper process, when that came in time."""
THREAD_GRACE_S = 5.0
PLAY_ENGINE = """
import os, runpy, sys
if "tunesmith_engine" in sys.orig_argv:
    sys.argv = list(sys.orig_argv)
    try:
        runpy.run_path({engine!r}, run_name="__main__")
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(ended.code or 0)
"""
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

MACHINE = ("QT_", "XDG_CURRENT_DESKTOP", "XDG_SESSION", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "GTK_", "WAYLAND_DISPLAY")
"""Beginnings of variables by which a person's desktop would change what a window looks like or where it writes."""
KEPT_OF_MACHINE = ("QT_QPA_PLATFORM",)


def pytest_configure() -> None:
    """Give every test, and every process that it starts, the same surroundings on every machine."""
    for name in [name for name in os.environ if name.startswith(MACHINE) and name not in KEPT_OF_MACHINE]:
        del os.environ[name]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell that starts the tests in the background leaves it so, and every program inherits it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # With a bus, a window would meet the person's own desktop; without one, dbus-x11 starts one and leaves a folder.
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = "disabled:"
    os.environ |= {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


LONGEST_FIRST = (
    "tests/engine/test_stop_sweep_later.py",
    "tests/engine/test_stop_sweep.py",
    "tests/engine/foreign/",
    "tests/engine/test_without_triton.py",
    "tests/engine/kernels/test_compile.py",
    "tests/e2e/",
    "tests/engine/",
    "tests/convergence/",
)
"""Files of minutes, the longest first: begun last, one of them would let the other workers wait at the end."""

LONG_TIMEOUT_S = 3600
"""Of a test of big counts or under Wine, which takes minutes on a quiet computer and far more beside other work."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, give patience where it is needed, and skip on Windows what can't run there."""
    items.sort(key=lambda item: [not item.nodeid.startswith(first) for first in LONGEST_FIRST])
    for item in items:
        takes_long = item.get_closest_marker("long") or item.nodeid.startswith("tests/windows/")
        if takes_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
    if sys.platform == "win32":
        for item in items:
            if why := linux_only.reason(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """English words and no known password, whatever the person at this machine has chosen or a test before this one."""
    monkeypatch.setattr(redact, "_passwords", set())
    monkeypatch.setattr(settings, "language_in_force", lambda: "en")
    yield
    messages.use_language("en")


@pytest.fixture(autouse=True)
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terabyte is free, however full the disk of this machine is."""
    told = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: told(path)._replace(free=1 << 40))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root of its own below tmp_path, without proxies of this machine."""
    root = tmp_path / "home"
    root.mkdir()
    monkeypatch.setenv("TUNESMITH_HOME", str(root))
    if os.name == "nt":
        # Its long path would send environments and caches to a short folder that all tests share.
        monkeypatch.setenv("TUNESMITH_WORK", str(root))
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return root


@pytest.fixture(autouse=True)
def no_print(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose code writes to standard output, unless it reads what was written (capsys, capfd)."""
    if {"capsys", "capfd", "capfdbinary"} & set(request.fixturenames):
        yield
        return
    capture = request.getfixturevalue("capsys")
    yield
    printed = capture.readouterr().out
    assert not printed, f"printed to standard output: {printed[:500]!r}"


@pytest.fixture(autouse=True)
def no_unexpected_log(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which one of our loggers warns, unless the test asks for caplog to read the log itself."""
    yield
    reads_log = "caplog" in inspect.signature(getattr(request, "function", None) or (lambda: None)).parameters
    records = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.levelno >= logging.WARNING
        and record.name.split(".")[0] in OUR_LOGGERS
        and record.name != RELAYING_LOGGER
    ]
    assert reads_log or not records, f"logged: {records}"


@pytest.fixture(autouse=True)
def no_dangling_thread() -> Iterator[None]:
    """Fail a test that leaves a thread behind which would keep the program from ending."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_GRACE_S
    while left := [t for t in threading.enumerate() if t not in before and t.is_alive() and not t.daemon]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert not left, f"threads left behind: {left}"


def write_safetensors(path: Path, shapes: dict[str, list[int]]) -> None:
    """Write a safetensors file of zeros in 32 bits."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A model folder that passes the first checks; its weights mean nothing."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    write_safetensors(folder / "model.safetensors", {"layers.0.q_proj.weight": [4, 8], "embed_tokens.weight": [16, 8]})
    return folder


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    """Three rows of chats as JSONL."""
    path = tmp_path / "data.jsonl"
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]
    path.write_text((json.dumps({"messages": turns}) + "\n") * 3)
    return path


@pytest.fixture
def make_spec(home: Path, model_folder: Path, data_file: Path) -> Callable[..., RunSpec]:
    """Return a function that makes a spec for the fake engine, on the CPU."""

    def make(name: str = "") -> RunSpec:
        spec = RunSpec(name=name)
        spec.model.path, spec.data.sources[0].path, spec.hardware.devices = str(model_folder), str(data_file), ["cpu"]
        return spec

    return make


def _write_fake_python(folder: Path) -> None:
    """Make a folder an environment whose Python plays the scripted engine."""
    if os.name == "nt":
        # A program can't be a script here: a real virtual environment that turns to the engine while it starts.
        scripts, packages = folder / "Scripts", folder / "Lib" / "site-packages"
        scripts.mkdir(parents=True)
        packages.mkdir(parents=True)
        shutil.copy(Path(venv.__file__).parent / "scripts" / "nt" / "python.exe", scripts)
        (folder / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}\n", encoding="utf-8")
        (packages / "sitecustomize.py").write_text(PLAY_ENGINE.format(engine=str(TESTS / "fake_engine.py")))
        return
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{TESTS / "fake_engine.py"}" "$@"\n')
    python.chmod(0o755)


@pytest.fixture
def fake_engine(home: Path, tmp_path: Path) -> Callable[[dict[str, Any]], None]:
    """Install the scripted engine as training environment; call the result with scripts, see tests/fake_engine.py."""
    folder = tmp_path / "fake-environment"
    _write_fake_python(folder)
    (home / "envs").mkdir()
    (home / "envs" / "train.current").write_text(str(folder))
    scripts = home / "fake-engine.json"
    scripts.write_text("{}")

    def script(actions: dict[str, Any]) -> None:
        scripts.write_text(json.dumps(actions))

    return script
