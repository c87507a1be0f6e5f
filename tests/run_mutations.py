"""Run folders that went wrong in one place each: files and fields of a real tiny run, by a fixed seed."""

from __future__ import annotations

import json
import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.tiny_run import GOOD, make_tiny_run
from tunesmith_core.runs import Run

SEED = 12

DEEP = "[" * 100_000 + "]" * 100_000
RAW = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000, "9" * 400, "-" + "9" * 30, str(2**63), DEEP)
"""Values that Python's own writer of JSON would not write."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**53, 1e308, -1e308, 5e-324, 0.5, "", "x", "7", "\ud800", "a\x00b", "~nouser", "~",
    "../../..", "/", "x" * 70_000, "<b>x</b>", "%1 {0} {run}", "\x1b[31m\r\n", "\u202e\u0007", [], {}, [None], [[]],
    [{}], ["\udfff"], [1e308, "x"], {"a": {"b": []}}, {"templates": {"message": {"values": 7}}}, -1e12, 1e12,
)  # fmt: skip

NAMES = (
    "a b",
    "ü-名字",
    "%1",
    "{0}",
    "-rf",
    "a'b\"c",
    "<b>x",
    "x" * 200,
    "a\nb",
    "~nouser",
    "\udcff",
    "new\t",
    "#&;$HOME",
)

JSON_FILES = ("run.json", "spec.json", "lease.json", "checkpoints/step-000002/MANIFEST.json")
FILES = (*JSON_FILES, "events.jsonl", "engine.log", "heartbeat", "run.lock", "supervisor.log", "control", "adapter")

BYTES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"x"',
    b"{}",
    b"\xff\xfe\x00",
    b"\x00" * 4096,
    b'{"version": 99}',
    DEEP.encode(),
)


def mutants(folder: Path, count: int, seed: int = SEED) -> Iterator[tuple[str, Run]]:
    """Yield what was done to a run and the run, one after another; each is a fresh copy of the tiny run.

    The run beside it, called GOOD, is never touched.
    """
    chance = random.Random(seed)
    original = make_tiny_run(folder / GOOD).path
    for number in range(count):
        path = folder / f"mutant-{number:05d}"
        shutil.copytree(original, path)
        change = chance.choices(CHANGES, WEIGHTS)[0]
        what = change(path, chance)
        if change is _rename:
            path = path.with_name(what)
        yield f"{number}: {change.__name__[1:]} {what!a:.120}", Run(path)
        remove(path)


def is_listed(run: Run) -> bool:
    """Return whether a mutant is still a run: a folder, or a link to one, with one of the files that a run begins with.

    One that was renamed is a run of that name; one whose place a file took, or that is empty, is none.
    """
    return run.path.is_dir() and any(os.path.lexists(run.path / name) for name in ("spec.json", "run.json"))


def is_unreadable(run: Run) -> bool:
    """Return whether a mutant must be marked: what it trains or when it began can't be read any more."""
    spec, header = _object(run.path / "spec.json"), _object(run.path / "run.json")
    created_at = (header or {}).get("created_at")
    is_time = type(created_at) in (int, float) and 0 < created_at < 1e11
    return spec is None or not is_time


def _object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in an ordinary file, or None."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8-sig")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def remove(path: Path) -> None:
    """Remove whatever has come of a run folder."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def line_of(text: str) -> bytes:
    """Return a journal line with a valid checksum for the text of a JSON object."""
    body = text[:-1].encode("utf-8", "surrogatepass")
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def _value(chance: random.Random) -> str:
    return chance.choice(RAW) if chance.random() < 0.3 else json.dumps(chance.choice(VALUES))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(each, (*path, key))


def changed(values: Any, chance: random.Random) -> tuple[str, str]:
    """Return the text of JSON values with one of them replaced, missing or new."""
    place = chance.choice(list(_places(values)))
    holder = values
    for key in place[:-1]:
        holder = holder[key]
    deed = chance.random()
    if deed < 0.1:
        del holder[place[-1]]
        return json.dumps(values), f"{place} missing"
    mark = "@here@"
    if deed < 0.15 and isinstance(holder, dict):
        holder["unknown" if deed < 0.13 else "templates"] = mark
    else:
        holder[place[-1]] = mark
    new = _value(chance)
    return json.dumps(values).replace(json.dumps(mark), new), f"{place} = {new[:60]}"


def _field(path: Path, chance: random.Random) -> str:
    name = chance.choice(JSON_FILES)
    text, what = changed(json.loads((path / name).read_text()), chance)
    (path / name).write_text(text)
    return f"{name} {what}"


def _event(path: Path, chance: random.Random) -> str:
    journal = path / "events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    number = chance.randrange(len(lines))
    values = json.loads(lines[number])
    values.pop("crc")
    text, what = changed(values, chance)
    lines[number] = line_of(text)
    journal.write_bytes(b"".join(lines))
    return f"line {number} {values.get('type')} {what}"


def _bytes(path: Path, chance: random.Random) -> str:
    name, content = chance.choice(FILES[:9]), chance.choice(BYTES)
    (path / name).write_bytes(content)
    return f"{name} {content[:20]!r}"


def _cut(path: Path, chance: random.Random) -> str:
    name = chance.choice(FILES[:6])
    whole = (path / name).read_bytes()
    end = chance.randrange(len(whole))
    (path / name).write_bytes(whole[:end])
    return f"{name} {end}"


def _garble(path: Path, chance: random.Random) -> str:
    name = chance.choice(FILES[:5])
    whole = bytearray((path / name).read_bytes())
    for _ in range(chance.randint(1, 4)):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    (path / name).write_bytes(bytes(whole))
    return name


def _kind(path: Path, chance: random.Random) -> str:
    """Put something else in place of a file or folder."""
    name = chance.choice(FILES)
    place = path / name
    remove(place)
    kind = chance.choice(
        ("missing", "folder", "full folder", "fifo", "loop", "dangling", "file", "device", "unreadable")
    )
    put(place, kind, "spec.json", chance.choice(("/dev/null", "/dev/tty")) if kind == "device" else "")
    return f"{name} {kind}"


def put(place: Path, kind: str, inner: str, device: str) -> None:
    """Put something else in place of a file that is gone.

    Args:
        place: where.
        kind: what.
        inner: name of what a full folder holds.
        device: to which a link leads.
    """
    if kind.endswith("folder"):
        place.mkdir()
        if kind == "full folder":
            (place / inner).write_text("{}")
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "loop":
        place.symlink_to(place.name)
    elif kind == "dangling":
        place.symlink_to("nowhere")
    elif kind in ("file", "empty", "unreadable"):
        place.write_text("" if kind == "empty" else "{}")
        place.chmod(0 if kind == "unreadable" else 0o600)
    elif kind == "device":
        place.symlink_to(device)


def _whole(path: Path, chance: random.Random) -> str:
    """Put something else in place of the run folder."""
    kind = chance.choice(("link", "loop", "file", "fifo", "empty"))
    if kind == "link":
        path.rename(path.parents[1] / "elsewhere") if not (path.parents[1] / "elsewhere").exists() else remove(path)
        path.symlink_to(path.parents[1] / "elsewhere")
        return kind
    remove(path)
    if kind == "loop":
        path.symlink_to(path.name)
    elif kind == "file":
        path.write_text("{}")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    return kind


def _rename(path: Path, chance: random.Random) -> str:
    name = chance.choice(NAMES)
    path.rename(path.with_name(name))
    return name


CHANGES: tuple[Callable[[Path, random.Random], str], ...] = (
    _field,
    _event,
    _bytes,
    _cut,
    _garble,
    _kind,
    _whole,
    _rename,
)
WEIGHTS = (30, 40, 5, 4, 4, 14, 1, 2)
