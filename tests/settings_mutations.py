"""Settings, draft, window state and index that went wrong in one place or two, by a fixed seed."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings

from tests.run_mutations import BYTES, VALUES, changed, remove
from tests.tiny_run import GOOD, make_tiny_run
from tunesmith_core import paths
from tunesmith_core.settings import SettingsFile
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

SEED = 13
KINDS = ("missing", "folder", "full folder", "fifo", "loop", "dangling", "device", "unreadable")


def make_settings() -> dict[str, bytes]:
    """Write every file and return what is in it, by its name."""
    paths.runs_dir().mkdir()
    make_tiny_run(paths.runs_dir() / GOOD)
    file = SettingsFile()
    file.change(theme="dark", font_scale_percent=120, proxy="http://proxy.example:8080", wheel_folder="/wheels")
    file.save()
    draft = {"models": ["org/name"], "data": ["/data/a.jsonl"], "form": {"spec": RunSpec(name="a").to_dict()}}
    (paths.config_dir() / "draft.json").write_text(json.dumps(draft))
    state = QSettings(str(paths.config_dir() / "window.ini"), QSettings.Format.IniFormat)
    for name, value in (("geometry", QByteArray(b"\x01\xd9\xd0\xcb" * 9)), ("rail_collapsed", True)):
        state.setValue(name, value)
    state.setValue("told_interrupted", "a\nb")
    state.setValue("dismissed/setup", "missing")
    state.sync()
    library = Library(paths.library_path())
    library.refresh_all()
    library.close()
    return {str(path): path.read_bytes() for path in places()}


def places() -> list[Path]:
    """The files, those that are mutated most first."""
    folder = paths.config_dir()
    names = ("settings.json", "settings.last-good.json", "draft.json", "window.ini")
    return [*(folder / name for name in names), paths.library_path()]


def mutants(count: int, seed: int = SEED) -> Iterator[str]:
    """Yield what was done to one file or two, one after another; all of them are whole again before each."""
    chance = random.Random(seed)
    whole = make_settings()
    for number in range(count):
        for name, content in whole.items():
            _restore(Path(name), content)
        chosen = chance.sample(places(), chance.choice((1, 1, 2)))
        yield f"{number}: " + ", ".join(f"{path.name} {_mutate(path, chance)!a:.100}" for path in chosen)


def _restore(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for each in (path, *path.parent.glob(f"{path.name}-*"), path.with_name("settings.damaged.json")):
        remove(each)
    path.write_bytes(content)


def _mutate(path: Path, chance: random.Random) -> str:
    dice = chance.random()
    if dice < 0.5 and path.suffix == ".json":
        text, what = changed(json.loads(path.read_text()), chance)
        path.write_text(text)
        return what
    if dice < 0.5 and path.suffix == ".ini":
        name, value = (
            chance.choice(("geometry", "rail_collapsed", "told_interrupted", "setup_offered")),
            chance.choice(VALUES),
        )
        path.write_text(f"[General]\n{name}={chance.choice(('@ByteArray(', '@Variant(', ''))}{value!a})\n")
        return f"{name} = {value!a}"
    content = bytearray(path.read_bytes())
    if dice < 0.65:
        path.write_bytes(content[: chance.randrange(len(content))])
        return "cut"
    if dice < 0.8:
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(bytes(content))
        return "garbled"
    if dice < 0.9:
        path.write_bytes(chance.choice(BYTES))
        return "other bytes"
    return _put(path, chance.choice(KINDS))


def _put(path: Path, kind: str) -> str:
    """Put something else in place of a file."""
    remove(path)
    if kind.endswith("folder"):
        path.mkdir()
        if kind == "full folder":
            (path / "file").write_text("{}")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind in ("loop", "dangling"):
        path.symlink_to(path.name if kind == "loop" else "nowhere")
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "unreadable":
        shutil.copy(os.devnull, path)
        path.chmod(0)
    return kind
