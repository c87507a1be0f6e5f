"""Runs one run inside the subsystem: `python start.py tunesmith_core.wsl.relay RUN --pid-file FILE`.

Files of Windows are slow from inside, so the engine works in a twin of the run folder on the Linux disk. The relay
copies the twin's results into the run folder and only then passes the journal line on that announces them: what the
window is told is saved can be found where it looks. Commands and the heartbeat travel the same way. Its standard input
is a lifeline: when the supervisor on Windows ends, it closes, and the relay ends the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tunesmith_core import devices, environments, files, paths
from tunesmith_core.engine_process import die_with_parent
from tunesmith_core.errors import TunesmithError
from tunesmith_core.folder_switch import switch_folder
from tunesmith_core.model_folder import hub_folder, is_hub_id
from tunesmith_core.protocol import decode, pending_commands
from tunesmith_core.runs import SUPERVISED, Run, create_run
from tunesmith_core.spec import RunSpec

POLL_S = 0.25
GRACE_S = 10.0
PRODUCTS = ("checkpoints", "adapter", "model")
"""Folders that the engine makes and a person keeps."""


def guest_path(path: str) -> str:
    """Return how a path of Windows is called here; what exists here already, and a hub id, stay as they are.

    Raises:
        UserError: `model-files-missing-or-corrupt` when a drive can't be reached from here.
    """
    is_windows_path = path[1:3] in (":\\", ":/") or path.startswith("\\\\")
    if not is_windows_path and not Path(path).is_absolute():
        return path
    result = subprocess.run(["wslpath", "-a", "-u", path], capture_output=True, check=False, timeout=30)
    if result.returncode != 0:
        raise TunesmithError(
            "model-files-missing-or-corrupt", "{path} can't be reached from inside the subsystem.", path=path
        )
    return result.stdout.decode("utf-8").strip("\n")


def guest_spec(spec: RunSpec, models: Path) -> RunSpec:
    """Return a spec whose files are named as they are called here; models is where those of the host are."""
    data = spec.to_dict()
    # A model of a hub was downloaded on the side of Windows, beside the runs.
    downloaded = models / hub_folder(spec.model.path, spec.model.revision).name
    from_hub = is_hub_id(spec.model.path) and downloaded.is_dir()
    data["model"]["path"] = str(downloaded) if from_hub else guest_path(spec.model.path)
    for source in data["data"]["sources"]:
        source["path"] = guest_path(source["path"])
    for section, name in (("evaluation", "path"), ("adapter", "start_from"), ("objective", "reference_adapter")):
        if data[section][name]:
            data[section][name] = guest_path(data[section][name])
    return RunSpec.from_dict(data)


def make_twin(host: Run) -> Run:
    """Create the folder on the Linux disk that the engine works in, with the journal and checkpoints so far."""
    twins = files.private_folder(paths.tmp_dir() / "twins")
    shutil.rmtree(twins / host.id, ignore_errors=True)
    made = create_run(guest_spec(host.load_spec(), host.path.parents[1] / paths.models_dir().name), twins)
    twin = Run(twins / host.id)
    if made.path != twin.path:
        files.replace(made.path, twin.path)
    # The run's own header: by it the engine knows the checkpoints of this run.
    for ours, copied in ((host.path / "run.json", twin.path / "run.json"), (host.journal_path, twin.journal_path)):
        if ours.exists():
            shutil.copyfile(ours, copied)
    if host.checkpoints_path.is_dir():
        shutil.copytree(host.checkpoints_path, twin.checkpoints_path)
    return twin


def copy_folder(source: Path, target: Path) -> None:
    """Copy a finished folder so that it is either complete under its name or not there."""
    staging = target.with_name(f".{target.name}.copying")
    shutil.rmtree(staging, ignore_errors=True)
    files.private_folder(target.parent)
    shutil.copytree(source, staging)
    for path in staging.rglob("*"):
        if path.is_file():
            files.fsync_file(path)
    files.publish_folder(staging, target)


def bring_back(twin: Run, host: Run) -> None:
    """Copy what the twin has and the run folder lacks; remove checkpoints that the engine has given up since."""
    kept = set()
    for checkpoint in sorted(twin.checkpoints_path.glob("step-*")):
        kept.add(checkpoint.name)
        if not (host.checkpoints_path / checkpoint.name).exists():
            copy_folder(checkpoint, host.checkpoints_path / checkpoint.name)
    for old in host.checkpoints_path.glob("step-*"):
        if old.name not in kept:
            shutil.rmtree(old, ignore_errors=True)
    if twin.adapter_path.is_dir():
        staging = host.tmp_path / "adapter"
        shutil.rmtree(staging, ignore_errors=True)
        copy_folder(twin.adapter_path, staging)
        switch_folder(staging, host.path / twin.adapter_path.name)
        shutil.rmtree(staging, ignore_errors=True)


class JournalPump:
    """Passes journal lines on, each after the files that it announces; after an error it continues at the same line."""

    def __init__(self, twin: Run, host: Run) -> None:
        self._twin, self._host = twin, host
        self._offset = twin.journal_path.stat().st_size if twin.journal_path.exists() else 0
        self._file = host.journal_path.open("ab", buffering=0)
        self._rest = b""
        """Bytes of a line that are not written yet."""

    def pump(self) -> None:
        """Pass on every whole line that has come since the last call.

        Raises:
            OSError: the run folder can't be written now.
        """
        self._write_rest()
        try:
            with self._twin.journal_path.open("rb") as file:
                file.seek(self._offset)
                block = file.read()
        except FileNotFoundError:
            return
        whole = block[: block.rfind(b"\n") + 1]
        for line in whole.splitlines(keepends=True):
            event = decode(line)
            announces = event is not None and event.type in ("checkpoint", "result")
            if announces:
                bring_back(self._twin, self._host)
            self._rest = line
            self._offset += len(line)
            self._write_rest()
            if announces:
                os.fsync(self._file.fileno())

    def _write_rest(self) -> None:
        while self._rest:
            self._rest = self._rest[self._file.write(self._rest) :]

    def close(self) -> None:
        """Close the journal on the other side."""
        self._file.close()


def pass_commands(host: Run, twin: Run) -> None:
    """Move waiting commands to the engine."""
    for path in pending_commands(host.control_path):
        with contextlib.suppress(FileNotFoundError):
            files.atomic_write_bytes(twin.control_path / path.name, path.read_bytes())
            path.unlink()


def pass_heartbeat(twin: Run, host: Run) -> None:
    """Touch the run's heartbeat as long as the engine touches its own."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - twin.heartbeat_path.stat().st_mtime < GRACE_S:
            host.heartbeat_path.touch()


class Relay:
    """The engine inside, and what travels between its twin and the run folder."""

    def __init__(self, host: Run) -> None:
        self.host = host
        self.twin = make_twin(host)
        self._asked_to_end = threading.Event()
        self._pump = JournalPump(self.twin, host)
        spec = self.twin.load_spec()
        self._engine = subprocess.Popen(
            environments.engine_command("run", "--run-dir", str(self.twin.path)),
            cwd=self.twin.path,
            env=environments.engine_environment() | devices.device_of(spec).environment() | SUPERVISED,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )

    def ask_to_end(self) -> None:
        """End the engine soon; callable from signal handlers and other threads."""
        self._asked_to_end.set()

    def run(self) -> int:
        """See the engine through and return its exit code (128 + number for a signal, as shells do)."""
        ended_at = None
        while self._engine.poll() is None:
            if self._asked_to_end.wait(POLL_S):
                ended_at = ended_at or time.monotonic()
                self._signal(signal.SIGKILL if time.monotonic() - ended_at > GRACE_S else signal.SIGTERM)
                time.sleep(POLL_S)
            self._pass_on()
        self._signal(signal.SIGKILL)
        # While the disk of Windows is full, what was trained lies in the twin only.
        while not (is_whole := self._pass_on()) and not self._asked_to_end.wait(POLL_S):
            pass
        self._pump.close()
        if is_whole:
            shutil.rmtree(self.twin.path, ignore_errors=True)
        code = self._engine.returncode
        return code if code >= 0 else 128 - code

    def _pass_on(self) -> bool:
        """Pass on what has come; return False where the disk refuses it for now."""
        try:
            pass_commands(self.host, self.twin)
            pass_heartbeat(self.twin, self.host)
            self._pump.pump()
        except OSError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._engine.pid, number)


def _hold_lifeline(relay: Relay) -> None:
    """Wait for the end of standard input, then end the engine."""
    sys.stdin.buffer.read()
    relay.ask_to_end()


def main(arguments: list[str]) -> int:
    """Relay the run of the first argument; return the engine's exit code."""
    parser = argparse.ArgumentParser(prog="tunesmith_core.wsl.relay")
    parser.add_argument("run", type=Path)
    parser.add_argument("--pid-file", type=Path, required=True)
    options = parser.parse_args(arguments)
    os.umask(files.PRIVATE_UMASK)
    # The leader of a group of its own: the supervisor ends the whole group by this number.
    with contextlib.suppress(PermissionError):
        os.setsid()
    files.atomic_write_text(options.pid_file, f"{os.getpid()}\n")
    relay = Relay(Run(options.run))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: relay.ask_to_end())
    threading.Thread(target=_hold_lifeline, args=(relay,), name="lifeline", daemon=True).start()
    code = relay.run()
    # Numbers are reused: what has ended must not be signalled.
    options.pid_file.unlink(missing_ok=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
