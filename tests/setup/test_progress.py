"""What the person reads: sizes, durations, phases with their times."""

from __future__ import annotations

import pytest

from tunesmith_setup.progress import Progress, duration_text, size_text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 MiB"), (97_517_568, "93 MiB"), (1024**3, "1.0 GiB"), (6_012_954_214, "5.6 GiB")]
)
def test_sizes_are_binary_units(num_bytes: int, text: str) -> None:
    assert size_text(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (59.94, "59.9 s"), (60, "1 min 00 s"), (125.4, "2 min 05 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_phase_is_announced_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.phase("Launcher environment"):
        progress.note("a note")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["==> Launcher environment", "    a note"]
    assert lines[2].startswith("    done in ")
    assert [name for name, _ in progress.timings] == ["Launcher environment"]


def test_a_failed_phase_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with pytest.raises(ValueError, match="broken"), progress.phase("Example"):
        raise ValueError("broken")
    assert capsys.readouterr().out == "==> Example\n"
    assert progress.timings == []
