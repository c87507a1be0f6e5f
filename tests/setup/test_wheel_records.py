"""Installed files are compared with what their wheels recorded."""

from __future__ import annotations

from pathlib import Path

from tunesmith_setup.packages.wheel_records import RecordedFile, damaged_files, digest_of, read_record


def test_missing_cut_and_changed_files_are_named(tmp_path: Path) -> None:
    info = tmp_path / "tiny-1.0.dist-info"
    info.mkdir()
    (tmp_path / "whole.py").write_bytes(b"x = 1\n")
    (tmp_path / "cut.py").write_text("x")
    (tmp_path / "changed.py").write_bytes(b"x = 2\n")
    (tmp_path / "unsized.pyc").write_text("")
    whole = digest_of(tmp_path / "whole.py")
    rows = [f"whole.py,sha256={whole},6", '"cut.py",sha256=b,6', "gone.py,sha256=c,6", "unsized.pyc,,"]
    rows += [f"changed.py,sha256={whole},6", "tiny-1.0.dist-info/RECORD,,"]
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    damaged = ["cut.py has 1 bytes instead of 6", "gone.py is missing"]
    assert damaged_files(tmp_path) == damaged
    assert damaged_files(tmp_path, full=True) == [*damaged, "changed.py has other bytes than recorded"]


def test_a_damaged_record_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    record = tmp_path / "RECORD"
    record.write_bytes(b'a.py,sha256=x,1\nb.py,md5=y,many\n\xff\xfe\0\0\0\n"open,quote')
    assert read_record(record) == [RecordedFile("a.py", "x", 1), RecordedFile("b.py", "", None)]
