"""What Tunesmith writes is one person's: no folder that others may enter, and no secret where it does not belong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tunesmith_core import cli, environments, files, launch, paths, trash
from tunesmith_core.operations.kinds.engine import PLAN_CHECK
from tunesmith_core.operations.runner import conduct
from tunesmith_core.redact import note_passwords, redact
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.settings import SettingsFile, settings_path
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

PASSWORD = "canary-proxy/pass@word"
PROXY = f"http://somebody:{quote(PASSWORD, safe='')}@localhost:1"
SHELL_PASSWORD = "canary-shell-password"
SECRETS = """DATABASE_URL GITHUB_PAT HF_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY OPENAI_API_KEY WANDB_API_KEY
NPM_AUTH KUBECONFIG SSH_AUTH_SOCK STRIPE_KEY PGPASSWORD SENTRY_DSN VAULT_ADDR MY_OWN_THING""".split()

needs_modes = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


def open_to_others(folder: Path) -> list[str]:
    """What others may read or enter below a folder, as far as they get there."""
    found, pending = [], [folder]
    while pending:
        for path in pending.pop().iterdir():
            if path.is_symlink() or not path.stat().st_mode & files.PRIVATE_UMASK:
                pending += [path] if path.is_dir() and not path.is_symlink() else []
            else:
                found.append(f"{path.relative_to(folder)}: {path.stat().st_mode & 0o777:o}")
    return found


@pytest.fixture
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """A process whose umask takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@needs_modes
@pytest.mark.usefixtures("any_umask")
def test_all_that_is_written_is_its_owners_alone(home: Path, fake_engine: Script, make_spec: Make) -> None:
    file = SettingsFile()
    file.change(proxy=PROXY)
    file.save()
    Library(paths.library_path()).close()
    fake_engine({"check": {}, "b": [["hello"], ["obey"]]})
    run, other = launch.start(make_spec("a")), launch.start(make_spec("b"))
    launch.stop(other)
    assert [launch.wait(each).state for each in (run, other)] == [RunState.FINISHED, RunState.STOPPED]
    (leased := Run(create_run(make_spec("c")).path)).lease(supervisor=None)
    seen = {path: path.stat().st_mode for path in leased.path.rglob("*")}
    assert {mode & 0o777 for mode in seen.values()} == {0o700, 0o600}
    modes: list[str] = []
    conduct(PLAN_CHECK, make_spec("p"), on_event=lambda _event: modes.extend(open_to_others(paths.tmp_dir())))
    trash.delete(run)
    made_here = ("fake-engine.json", "envs")
    assert modes == []
    assert [each for each in open_to_others(home) if not each.startswith(made_here)] == []
    assert len(list(home.rglob("*"))) > 25


@needs_modes
def test_what_an_earlier_version_left_open_is_closed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [home / name for name in ("runs", "trash", "logs", "config", "locks", "cache", "tmp")]
    for folder in folders:
        folder.mkdir(0o755)
    paths.library_path().touch(0o644)
    home.chmod(0o755)
    assert cli.main(["version"]) == 0
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert paths.library_path().stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o755, "a chosen folder may hold more than what is ours"


@needs_modes
def test_the_default_root_is_ours_altogether(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    paths.default_root().mkdir(0o755)
    paths.make_private()
    assert paths.default_root().stat().st_mode & 0o777 == 0o700


@needs_modes
def test_a_run_of_an_earlier_version_is_closed_when_it_continues(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["steps", 1], ["checkpoint"], ["exit", 1]]})
    run = launch.start(make_spec("r"))
    launch.wait(run)
    run.path.chmod(0o755)
    launch.resume(run)
    launch.wait(run)
    assert run.path.stat().st_mode & 0o777 == 0o700


@needs_modes
def test_another_persons_folder_and_a_drive_without_modes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        files.make_private(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "chmod", lambda *_: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted")))
        files.make_private(tmp_path)
    files.make_private(tmp_path / "gone")
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    files.make_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("others", [("a",), ("a", "a/b")])
def test_folders_may_be_made_by_two_processes_at_once(
    others: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def overtaken(path: Path, mode: int) -> None:
        try:
            make(path, mode)
        except FileNotFoundError:
            for name in others:
                make(tmp_path / name, mode)
            raise

    with monkeypatch.context() as race:
        race.setattr(os, "mkdir", overtaken)
        assert files.private_folder(tmp_path / "a" / "b").is_dir()


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    assert files.private_folder(tmp_path / "a" / "b" / "c").is_dir()
    assert files.private_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        files.private_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError if os.name != "nt" else OSError):
        files.private_folder(tmp_path / "file" / "below")


def test_a_drive_that_is_gone_is_no_endless_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_: (_ for _ in ()).throw(FileNotFoundError(2, "No such drive")))
    with pytest.raises(FileNotFoundError):
        files.private_folder(Path("/gone/folder"))


class Watch:
    """Reads arguments of all processes, and variables of engines, as long as it is open."""

    def __init__(self) -> None:
        self.arguments: set[bytes] = set()
        self.variables: set[bytes] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        # Under Wine looking itself takes long.
        while not self._over.wait(0.3 if sys.platform == "win32" else 0.02):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    arguments = (process / "cmdline").read_bytes()
                    self.arguments.add(arguments)
                    if b"tunesmith_engine" in arguments or b"fake_engine" in arguments:
                        self.variables.add((process / "environ").read_bytes())
                except OSError:
                    continue


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads other processes as Linux shows them")
def test_no_secret_is_written_said_or_passed_on(
    home: Path, tmp_path: Path, fake_engine: Script, make_spec: Make
) -> None:
    words = f"refused: {PASSWORD} {PROXY} {SHELL_PASSWORD}"
    fake_engine({"*": [["hello"], ["say", words], ["steps", 5, 0.2], ["exit", 1]]})
    canaries = {name: f"canary-{name}" for name in SECRETS}
    environment = os.environ | canaries | {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment["HTTPS_PROXY"] = f"http://me:{SHELL_PASSWORD}@localhost:1"
    spec, log = tmp_path / "spec.json", tmp_path / "failed.log"
    spec.write_text(json.dumps(make_spec("s").to_dict()))
    log.write_text(f"ProxyError: 407 for {PROXY}, password {PASSWORD}\n")
    commands = (
        ["settings", "proxy=-"],
        ["train", str(spec)],
        ["runs"],
        ["show", "s-01"],
        ["check", str(spec)],
        ["preview", str(spec)],
        ["explain", str(log)],
        ["probe"],
        ["settings"],
    )
    said = b""
    with Watch() as watch:
        for command in commands:
            result = subprocess.run(
                [sys.executable, "-m", "tunesmith_core", *command],
                env=environment,
                input=f"{PROXY}\n".encode(),
                capture_output=True,
                check=False,
                timeout=120,
            )
            said += result.stdout + result.stderr
    assert b"s-01" in said
    assert "refused" in Run(paths.runs_dir() / "s-01").engine_log_path.read_text()
    allowed = {settings_path(), SettingsFile().last_good_path}
    own = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "fake-engine.json"}
    texts = {str(path): content for path, content in own.items() if path not in allowed}
    texts |= {"output": said, "arguments": b"\n".join(watch.arguments), "engines": b"\n".join(watch.variables)}
    forms = [f"canary-{name}".encode() for name in SECRETS]
    passwords = (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), "canary-proxy", SHELL_PASSWORD)
    forms += [password.encode() for password in passwords]
    assert [(name, form) for name, text in texts.items() for form in forms if form in text] == []
    assert all(b"canary-proxy" in own[path] for path in allowed), "the search would find it"
    assert watch.variables


def test_a_password_is_redacted_wherever_it_stands(home: Path) -> None:
    SettingsFile().change(proxy=PROXY, package_index="https://me:other-password@mirror.example/simple")
    for text in (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), "other-password"):
        assert text not in redact(f"407 for {text}.")
        assert redact(redact(f"x {text}")) == redact(f"x {text}")


@pytest.mark.parametrize("address", ["", "http://proxy.example:1", "http://me:abc@p:1", "http://me:secret@p:1", "//["])
def test_what_is_no_password_is_no_reason_to_redact(home: Path, address: str) -> None:
    note_passwords(address)
    assert redact("abc <secret> loss 1.5") == "abc <secret> loss 1.5"


@pytest.mark.skipif(os.name == "nt", reason="the scripted engine is such a file there")
def test_a_planted_startup_file_stops_a_run_before_it_is_created(
    home: Path, fake_engine: Script, make_spec: Make
) -> None:
    evidence = home / "evidence"
    folder = environments.pointed_environment(environments.TRAINING_POINTER)
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (folder / environments.MANIFEST).write_text("{}")
    (site / "planted.pth").write_text(f"import os; open({str(evidence)!r}, 'w')\n")
    with pytest.raises(environments.TunesmithError, match=r"planted\.pth") as caught:
        launch.start(make_spec("r"))
    assert (caught.value.code, caught.value.actions) == ("environment-damaged", ("repair-environment",))
    with pytest.raises(environments.TunesmithError, match=r"planted\.pth"):
        conduct(PLAN_CHECK, make_spec("r"))
    assert not evidence.exists()
    assert not paths.runs_dir().exists()
    shutil.rmtree(site)
    assert launch.wait(launch.start(make_spec("r"))).state is RunState.FINISHED
