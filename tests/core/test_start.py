"""The start script: our modules run isolated in any environment, and nothing that lies around is imported."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tunesmith_core import environments, paths, start

PLANTED = """import os
with open(os.environ["EVIDENCE"], "a") as file:
    file.write(__name__ + " from " + __file__ + "\\n")
"""
NAMES = ("torch", "random", "json", "tempfile", "sitecustomize", "usercustomize", "tunesmith_core", "tunesmith_engine")
LOOK = """
import importlib.util, json, random, sys, tempfile
from tunesmith_core import runs
torch = importlib.util.find_spec("torch")
files = [module.__file__ for module in (json, random, tempfile, runs)] + ([torch.origin] if torch else [])
print(json.dumps([files, sys.path, sys.flags.utf8_mode, sys.stdout.encoding]))
"""


def plant(folder: Path) -> None:
    """Put modules with tempting names and a .pth file that executes code into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.py").write_text(PLANTED)
    (folder / "planted.pth").write_text(f"import os; open(os.environ['EVIDENCE'], 'a').write('pth in {folder.name}')\n")


@pytest.mark.usefixtures("home")
def test_the_start_script_runs_our_modules_isolated_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "tunesmith_core.py").write_text("raise SystemExit('the wrong one')")
    result = subprocess.run(
        environments.own_command("tunesmith_core", "version"),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("Tunesmith ")


def test_nothing_planted_is_imported(tmp_path: Path) -> None:
    """Modules in the working folder, on PYTHONPATH and in the person's site folder stay where they are."""
    working, listed, base = tmp_path / "run", tmp_path / "listed", tmp_path / "base"
    plant(working)
    plant(listed)
    plant(Path(sysconfig.get_path("purelib", f"{os.name}_user", {"userbase": str(base)})))
    evidence = tmp_path / "evidence"
    # `code` stands for a module of ours: the script runs any, and this one executes what it reads.
    environment = {
        **os.environ,
        "EVIDENCE": str(evidence),
        "PYTHONPATH": str(listed),
        "PYTHONUSERBASE": str(base),
        "PYTHONSTARTUP": str(listed / "random.py"),
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "latin-1",
        "LC_ALL": "C",
    }
    environment.pop("PYTHONNOUSERSITE", None)
    result = subprocess.run(
        environments.own_command("code", "-q"),
        input=f"exec({LOOK!r})\n",
        cwd=working,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not evidence.exists(), evidence.read_text()
    imported, search_path, utf8_mode, encoding = json.loads(result.stdout.removeprefix(">>> ").splitlines()[0])
    assert not [path for path in (*imported, *search_path) if path.startswith(str(tmp_path))]
    assert (utf8_mode, encoding) == (1, "utf-8")


def test_what_is_planted_would_be_imported_without_the_isolation(tmp_path: Path) -> None:
    """The proof that the test above looks at something."""
    plant(tmp_path)
    evidence = tmp_path / "evidence"
    environment = {**os.environ, "EVIDENCE": str(evidence), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "import random"], cwd=tmp_path, env=environment, check=True)
    assert "random from" in evidence.read_text()
    assert "sitecustomize from" in evidence.read_text()


def test_the_start_script_maps_our_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = start.ProgramFinder()
    assert finder.find_spec("numpy") is None
    found = finder.find_spec("tunesmith_gui")
    assert found is not None
    assert found.origin == str(paths.package_folder("tunesmith_gui") / "__init__.py")
    monkeypatch.setattr(start, "PACKAGES", ("tunesmith_nothing",))
    assert finder.find_spec("tunesmith_nothing") is None


def test_the_start_script_hands_on_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(runpy, "run_module", lambda name, **options: calls.append((name, sys.argv[:], options)))
    monkeypatch.setattr(sys, "argv", ["start.py", "tunesmith_core", "runs"])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    runpy.run_path(start.__file__, run_name="__main__")
    assert calls == [("tunesmith_core", ["tunesmith_core", "runs"], {"run_name": "__main__", "alter_sys": True})]


def test_no_program_of_ours_is_started_by_a_generated_shim() -> None:
    """Application control blocks unsigned .exe shims while python.exe runs: every start goes through an interpreter."""
    commands = [environments.own_command("tunesmith_core"), environments.module_command("python", "tunesmith_gui")]
    for command in commands:
        assert Path(command[0]).stem.startswith("python")
        assert command[1:4] == ["-I", "-X", "utf8"]
        assert command[4] == start.__file__


def test_the_windows_job_is_importable_and_absent_elsewhere() -> None:
    from tunesmith_core import windows_job

    assert hasattr(windows_job, "WindowsJob") == (sys.platform == "win32")
