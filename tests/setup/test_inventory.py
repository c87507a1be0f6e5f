"""The list of an environment's files finds every change, and its own damage."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from tunesmith_core.environments import MANIFEST, PROOF
from tunesmith_setup.packages import inventory
from tunesmith_setup.packages.inventory import Damage, Entry, Inventory, Kind

SITE = "lib/python3.11/site-packages"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder that looks like an environment, with one package."""
    site = tmp_path / "environment" / SITE
    (site / "tiny-1.0.dist-info").mkdir(parents=True)
    (site / "tiny.py").write_text("x = 1\n")
    (site / "tiny-1.0.dist-info" / "RECORD").write_text("tiny.py,,6\n../../../bin/tool,,9\nbrought.pyc,sha256=x,3\n")
    (site / "brought.pyc").write_bytes(b"abc")
    folder = tmp_path / "environment"
    (folder / "bin").mkdir()
    (folder / "bin" / "tool").write_text("#!python\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")
    (folder / "pyvenv.cfg").write_text("home = x\n")
    inventory.seal(folder, {"name": "environment"})
    return folder


def compare(folder: Path, **how: bool) -> list[str]:
    listed = inventory.read(folder)
    assert listed is not None
    return [str(damage) for damage in inventory.compare(folder, listed, **how)]


def test_an_untouched_environment_is_whole(folder: Path) -> None:
    assert compare(folder) == compare(folder, full=True) == []
    (folder / PROOF).write_text("{}")
    assert compare(folder) == [], "the proof is written later"


def test_each_kind_of_change_is_seen(folder: Path) -> None:
    (folder / SITE / "tiny.py").write_text("x = 2\n")
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to("/elsewhere")
    (folder / "bin" / "tool").chmod(0o644)
    (folder / "pyvenv.cfg").unlink()
    (folder / SITE / "stray.pth").write_text("import os")
    (folder / MANIFEST).write_text("{}")
    assert compare(folder) == [
        "bin/python (changed)",
        "bin/tool (changed)",
        f"{SITE}/stray.pth (unexpected)",
        f"{SITE}/tiny.py (changed)",
        "pyvenv.cfg (missing)",
        "tunesmith-environment.json (changed)",
    ]


def test_a_touched_file_with_the_same_bytes_is_whole(folder: Path) -> None:
    os.utime(folder / SITE / "tiny.py", ns=(1, 1))
    assert compare(folder) == []


def test_a_change_that_keeps_size_and_time_needs_the_bytes(folder: Path) -> None:
    path = folder / SITE / "tiny.py"
    status = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compare(folder) == []
    assert compare(folder, full=True) == [f"{SITE}/tiny.py (changed)"]


def test_a_file_that_vanishes_while_it_is_read_is_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = inventory.read(folder)
    assert listed is not None
    found = inventory.scan(folder)
    monkeypatch.setattr(inventory, "scan", lambda folder: found)
    (folder / SITE / "tiny.py").unlink()
    assert [damage.path for damage in inventory.compare(folder, listed, full=True)] == [f"{SITE}/tiny.py"]


def test_compiled_python_that_fits_its_source_is_no_stranger(folder: Path) -> None:
    source = folder / SITE / "tiny.py"
    compiled = Path(importlib.util.cache_from_source(str(source)))
    compiled.parent.mkdir()
    status = source.stat()
    header = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    compiled.write_bytes(header + b"code")
    assert compare(folder) == []
    compiled.write_bytes(header[:-1])
    assert len(compare(folder)) == 1
    compiled.unlink()
    compiled.with_name("nobody.cpython-311.pyc").write_bytes(header)
    assert len(compare(folder)) == 1


@pytest.mark.parametrize("content", [b"", b"nonsense", b"x" * 64 + b"\n{}\n"])
def test_a_damaged_list_is_no_list(folder: Path, content: bytes) -> None:
    (folder / inventory.INVENTORY).write_bytes(content)
    assert inventory.read(folder) is None
    (folder / inventory.INVENTORY).unlink()
    assert inventory.read(folder) is None


def test_without_a_list_the_records_serve(folder: Path) -> None:
    (folder / inventory.INVENTORY).unlink()
    recorded = inventory.from_records(folder)
    assert set(recorded.entries) == {f"{SITE}/tiny.py", "bin/tool", f"{SITE}/brought.pyc"}
    (folder / SITE / "tiny.py").write_text("cut")
    (folder / SITE / "brought.pyc").write_bytes(b"compiled again")
    (folder / SITE / "stray.pth").write_text("import os")
    (folder / "unlisted").write_text("outside the packages nothing is known")
    (folder / MANIFEST).unlink()
    assert inventory.compare(folder, recorded) == [
        Damage(f"{SITE}/stray.pth", Kind.UNEXPECTED),
        Damage(f"{SITE}/tiny-1.0.dist-info/RECORD", Kind.UNEXPECTED),
        Damage(f"{SITE}/tiny.py", Kind.CHANGED, recorded.entries[f"{SITE}/tiny.py"]),
        Damage(MANIFEST, Kind.MISSING),
    ]


def test_small_files_that_no_wheel_brings_are_kept_in_the_list(folder: Path) -> None:
    listed = inventory.read(folder)
    assert listed is not None
    kept = {name for name, entry in listed.entries.items() if entry.kept}
    assert kept == {"pyvenv.cfg", "bin/tool", f"{SITE}/tiny-1.0.dist-info/RECORD"}


def test_what_the_list_keeps_has_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of wheels come from the download cache again, and their digests from the wheels' records."""
    site, info = folder / SITE, folder / SITE / "tiny-1.0.dist-info"
    rows = "tiny.py,sha256=known,6\n../../../bin/tool,,4096\n../../../bin/long,,4097\n"
    (info / "RECORD").write_text(rows + "# no row\n" * 66_667)
    for path, num_bytes in (
        (folder / "bin" / "tool", 4096),
        (folder / "bin" / "long", 4097),
        (folder / "own", 512 * 1024),
        (folder / "own-large", 512 * 1024 + 1),
        (folder / "own.pyc", 1),
        (folder / "RECORD", 600_000),
        (info / "entry_points.txt", 1),
    ):
        path.write_bytes(bytes(num_bytes))
    read: list[str] = []
    digests = inventory.digests

    def note(folder: Path, names: Iterable[str]) -> dict[str, str]:
        read.extend(names := list(names))
        return digests(folder, names)

    monkeypatch.setattr(inventory, "digests", note)
    entries = inventory.take(folder, None).entries
    kept = {"bin/tool", "own", "pyvenv.cfg", f"{SITE}/{info.name}/RECORD", f"{SITE}/{info.name}/entry_points.txt"}
    assert {name for name, entry in entries.items() if entry.kept} == kept
    assert base64.b64decode(entries["pyvenv.cfg"].kept) == b"home = x\n"
    assert entries["bin/python"] == Entry(None, None, "link:/usr/bin/python3")
    status = (site / "tiny.py").stat()
    executable = None if os.name == "nt" else False
    assert entries[f"{SITE}/tiny.py"] == Entry(6, status.st_mtime_ns, "known", executable)
    assert set(read) == entries.keys() - {f"{SITE}/tiny.py", "bin/python"}


def test_list_and_manifest_are_text_that_people_can_read(folder: Path) -> None:
    (folder / "训练.txt").write_text("x")
    inventory.seal(folder, {"name": "训练", "version": 1})
    assert (folder / MANIFEST).read_text(encoding="utf-8") == '{\n  "name": "训练",\n  "version": 1\n}\n'
    digest, manifest, *rows = (folder / inventory.INVENTORY).read_text(encoding="utf-8").splitlines()
    assert hashlib.sha256("\n".join([manifest, *rows, ""]).encode()).hexdigest() == digest
    names = [json.loads(row)[0] for row in rows]
    assert names == sorted(names)
    assert rows[-1].startswith('["训练.txt", 1, ')
    assert compare(folder) == []


def test_a_list_without_a_manifest_says_nothing_about_it(folder: Path) -> None:
    inventory.write(folder, Inventory({}, None))
    listed = inventory.read(folder)
    assert listed is not None
    assert listed.manifest is None
    assert Kind.CHANGED not in {damage.kind for damage in inventory.compare(folder, listed)}
