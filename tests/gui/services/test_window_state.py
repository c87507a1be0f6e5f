"""What the window remembers, and what may stand in the place of its file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tunesmith_core import files, paths
from tunesmith_gui.services.window_state import FILE_NAME, window_state


def test_what_the_window_remembers_is_there_at_the_next_start(home: Path) -> None:
    window_state().setValue("rail_collapsed", True)
    assert window_state().value("rail_collapsed", type=bool) is True
    assert (paths.config_dir() / FILE_NAME).is_file()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
@pytest.mark.parametrize("place", ["fifo", "device"])
def test_a_window_never_waits_for_a_file_that_is_none(home: Path, place: str) -> None:
    path = files.private_folder(paths.config_dir()) / FILE_NAME
    if place == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    window_state().setValue("rail_collapsed", True)
    assert window_state().value("rail_collapsed", type=bool) is True
    assert path.exists(), "what a person put there stays"
