"""Installed files are compared with what their wheels recorded."""

from __future__ import annotations

from pathlib import Path

from tunesmith_setup.wheel_records import damaged_files


def test_missing_and_cut_files_are_named(tmp_path: Path) -> None:
    info = tmp_path / "tiny-1.0.dist-info"
    info.mkdir()
    (tmp_path / "whole.py").write_text("x = 1\n")
    (tmp_path / "cut.py").write_text("x")
    (tmp_path / "unsized.pyc").write_text("")
    rows = ["whole.py,sha256=a,6", '"cut.py",sha256=b,6', "gone.py,sha256=c,6", "unsized.pyc,,"]
    (info / "RECORD").write_text("\n".join([*rows, "tiny-1.0.dist-info/RECORD,,"]) + "\n")
    assert damaged_files(tmp_path) == ["cut.py has 1 bytes instead of 6", "gone.py is missing"]
