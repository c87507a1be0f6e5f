"""Models from elsewhere come in whole or not at all, and what was downloaded is read again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, files, model_import, paths
from tunesmith_core.downloads import Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import HubFile, HubModel
from tunesmith_core.operations.kinds.library import IMPORT_FOLDER, VERIFY, FolderSpec
from tunesmith_core.operations.runner import conduct


class Journal:
    """Keeps how far it is."""

    def __init__(self) -> None:
        self.done: list[tuple[int, int]] = []

    def event(self, _kind: str, /, **data: Any) -> None:
        self.done.append((data["done_bytes"], data["total_bytes"]))


@pytest.fixture
def journal() -> Any:
    return Journal()


@pytest.fixture
def elsewhere(home: Path, model_folder: Path) -> Path:
    (model_folder / "README.md").write_text("---\nlicense: mit\n---\n")
    (model_folder / "pytorch_model.bin").write_bytes(b"pickle")
    (model_folder / "original").mkdir()
    return model_folder


def import_(journal: Any, folder: Path) -> Path:
    return Path(model_import.import_folder(journal, FolderSpec(str(folder))))  # type: ignore[arg-type]


def test_a_folder_is_copied_as_far_as_it_is_a_model(elsewhere: Path, journal: Any) -> None:
    before = {path: path.stat().st_mtime_ns for path in elsewhere.iterdir()}
    target = import_(journal, elsewhere)
    assert target == paths.models_dir() / elsewhere.name
    names = {path.name for path in target.iterdir()}
    assert names == {path.name for path in elsewhere.iterdir()} - {"pytorch_model.bin", "original"}
    assert all((target / name).read_bytes() == (elsewhere / name).read_bytes() for name in names)
    assert journal.done[-1][0] == journal.done[-1][1] > 0
    assert {path: path.stat().st_mtime_ns for path in elsewhere.iterdir()} == before
    with pytest.raises(TunesmithError, match="exists already") as caught:
        import_(journal, elsewhere)
    assert caught.value.code == "model-exists"


def test_a_folder_of_something_else_is_named_as_such(home: Path, tmp_path: Path, journal: Any) -> None:
    folder = tmp_path / "holiday"
    folder.mkdir()
    with pytest.raises(TunesmithError, match="There is no model in") as caught:
        import_(journal, folder)
    assert "config.json and the safetensors files" in caught.value.hint
    (folder / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(TunesmithError) as caught:
        import_(journal, folder)
    assert "import the file instead" in caught.value.hint
    with pytest.raises(TunesmithError) as caught:
        import_(journal, tmp_path / "nowhere")
    assert "There is no model in" not in caught.value.message


def test_what_goes_wrong_leaves_nothing(elsewhere: Path, journal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TunesmithError, match="config"):
        import_(journal, elsewhere / "original")
    with monkeypatch.context() as patched:
        patched.setattr(files, "free_bytes", lambda _folder: 1000)
        with pytest.raises(TunesmithError, match=r"only 0\.0 GiB are free"):
            import_(journal, elsewhere)

    def full(_fault: object, **_data: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "event", full)
    with pytest.raises(TunesmithError) as caught:
        import_(journal, elsewhere)
    assert caught.value.code == "disk-full"
    assert list(paths.models_dir().iterdir()) == []


def test_what_was_downloaded_is_compared_with_its_hashes(elsewhere: Path, journal: Any) -> None:
    spec = FolderSpec(str(elsewhere))  # type: ignore[arg-type]
    with pytest.raises(TunesmithError, match="was not downloaded by Tunesmith"):
        model_import.verify(journal, spec)
    entries = tuple(
        HubFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(elsewhere.iterdir())
        if path.is_file()
    )
    Download(HubModel("org/name", "c" * 40, "page", entries), "org/name").save(elsewhere)
    assert model_import.verify(journal, spec) == []
    assert journal.done[0][0] == 0 < journal.done[-1][0] < journal.done[-1][1]
    (elsewhere / "README.md").write_text("changed")
    assert conduct(VERIFY, spec).get() == ["README.md"]


def test_the_command(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([IMPORT_FOLDER.name, str(elsewhere)]) == 0
    assert (paths.models_dir() / elsewhere.name / "config.json").is_file()
    capsys.readouterr()
