"""What wheels recorded of their files is read, also where a disk damaged it."""

from __future__ import annotations

from pathlib import Path

from tunesmith_setup.packages.wheel_records import RecordedFile, digest_of, read_record, recorded_files

ROWS = [RecordedFile("a.py", "x", 1), RecordedFile("b.py", "", None)]


def test_a_damaged_record_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    record = tmp_path / "RECORD"
    good = b"a.py,sha256=x,1\nb.py,md5=y,many\n"
    for damage in (
        b"",
        b"only,two\nthese,are,four,fields\n",
        b'\xff\xfe\0\0\0\n"open,quote',
        b"x" * 200_000 + b"\nc,,\n",
    ):
        record.write_bytes(good + damage)
        # How long a field may be, another reader of the same process may have changed.
        assert read_record(record)[: len(ROWS)] == ROWS


def test_names_with_commas_and_every_package_are_read(tmp_path: Path) -> None:
    for name, row in (("one-1.0", '"a,b.py",sha256=x,3'), ("two-1.0", "c.py,,")):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "RECORD").write_text(f"{row}\n")
    assert list(recorded_files(tmp_path)) == [RecordedFile("a,b.py", "x", 3), RecordedFile("c.py", "", None)]


def test_a_digest_has_the_letters_of_a_record(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_bytes(b"x = 1\n")
    assert digest_of(tmp_path / "whole.py") == "nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q"
