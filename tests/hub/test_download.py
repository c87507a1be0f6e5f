"""What a hub may answer, and what comes of it: downloads of the real huggingface_hub from a hub on the loopback."""

from __future__ import annotations

import dataclasses
import errno
import socket
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.hub.conftest import QUICK, Journal
from tests.hub.loopback import COMMIT, LARGE_BYTES, Fault, LoopbackHub, Repository, repository_of, sha256
from tunesmith_core import downloads, files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import base_folder, hub_folder, local_folder
from tunesmith_engine.hub.attempts import ASKING, Attempts
from tunesmith_engine.hub.client import Hub
from tunesmith_engine.hub.download import download
from tunesmith_engine.hub.modelscope import ModelScope

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


def refused(
    hub: LoopbackHub, hub_id: str, code: str, words: str = "", journal: Journal | None = None
) -> TunesmithError:
    with pytest.raises(TunesmithError) as caught:
        download(journal or Journal(), hub_id, endpoint=hub.endpoint, retry=QUICK)
    assert caught.value.code == code, caught.value.message
    assert words in caught.value.message
    assert not hub_folder(hub_id).exists()
    return caught.value


def test_facts_of_a_repository(hub: LoopbackHub, whole_model: Path) -> None:
    model = Hub(hub.endpoint, retry=QUICK).facts("org/whole")
    assert (model.id, model.commit, model.page) == ("org/whole", COMMIT, f"{hub.endpoint}/org/whole")
    assert (model.licence, model.model_type, model.context_length) == ("apache-2.0", "llama", 512)
    assert (model.num_parameters, model.dtype, model.has_chat_template) == (1000, "F32", True)
    weights = next(file for file in model.files if file.path == "model.safetensors")
    assert weights.size_bytes == (whole_model / "model.safetensors").stat().st_size >= LARGE_BYTES
    assert weights.sha256 == sha256((whole_model / "model.safetensors").read_bytes())
    config = next(file for file in model.files if file.path == "config.json")
    assert (config.sha256, len(config.git_sha1)) == ("", 40)


def test_a_search(hub: LoopbackHub) -> None:
    found = Hub(hub.endpoint, retry=QUICK).search("shard", family="llama", licence="apache-2.0", largest=8)
    assert [model.id for model in found] == ["org/sharded"]


def test_a_model_that_is_there_is_not_asked_for_again(hub: LoopbackHub, journal: Journal) -> None:
    folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    hub.requests.clear()
    assert download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK) == folder == local_folder("org/whole")
    assert hub.requests == []


def test_a_run_names_a_model_that_was_not_downloaded(home: Path) -> None:
    with pytest.raises(TunesmithError, match="was not downloaded") as caught:
        base_folder("org/whole", "v1")
    assert caught.value.hint == "Run: tunesmith models get org/whole --revision v1"


def test_progress_tells_bytes_and_rate(hub: LoopbackHub, journal: Journal) -> None:
    download(journal, "org/sharded", endpoint=hub.endpoint, retry=QUICK)
    (plan,) = journal.of("plan")
    last = journal.of("progress")[-1]
    assert last["done_bytes"] == last["total_bytes"] == plan["total_bytes"]
    assert last["bytes_per_s"] > 0


def test_a_gated_model_names_its_page(hub: LoopbackHub, whole_model: Path, journal: Journal) -> None:
    hub.repositories["org/gated"] = repository_of(whole_model, gated="manual", token=TOKEN)
    error = refused(hub, "org/gated", "hub-gated-401", "asks for an access token for org/gated")
    assert error.link == f"{hub.endpoint}/org/gated"


def test_the_token_opens_a_gated_model_and_stays_with_the_hub(
    hub: LoopbackHub, whole_model: Path, journal: Journal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["org/gated"] = repository_of(whole_model, gated="auto", token=TOKEN)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    download(journal, "org/gated", endpoint=hub.endpoint, retry=QUICK)
    assert TOKEN in hub.tokens["127.0.0.1"]
    assert hub.tokens["localhost"] == {""}, "large files come from another host"
    assert TOKEN not in repr(journal.events)
    assert [path for path in home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()] == []


def test_a_token_without_access(hub: LoopbackHub, whole_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["org/gated"] = repository_of(whole_model, gated="auto", token=TOKEN)
    monkeypatch.setenv("HF_TOKEN", "hf_another_token_of_somebody")
    refused(hub, "org/gated", "hub-gated-401", "has no access to org/gated")


def test_a_refused_token_is_told_whatever_is_asked(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.revoked.add(TOKEN)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    refused(hub, "org/whole", "hub-token-refused", "127.0.0.1")
    with pytest.raises(TunesmithError) as caught:
        Hub(hub.endpoint).search("whole")
    assert caught.value.code == "hub-token-refused"
    assert TOKEN not in str(caught.value.message)


def test_a_private_model_may_be_a_wrong_name(hub: LoopbackHub, whole_model: Path) -> None:
    hub.repositories["org/private"] = repository_of(whole_model, token=TOKEN)
    for name in ("org/private", "org/wrong-name"):
        error = refused(hub, name, "hub-not-found", name)
        assert "For a private model" in error.hint


@pytest.mark.parametrize(("hub_id", "revision"), [("org/nothing", ""), ("org/whole", "v9")])
def test_what_the_hub_does_not_have(hub_id: str, revision: str, hub: LoopbackHub, journal: Journal) -> None:
    with pytest.raises(TunesmithError) as caught:
        download(journal, hub_id, revision, endpoint=hub.endpoint, retry=QUICK)
    assert caught.value.code == "hub-not-found"


def test_a_renamed_repository_is_followed(hub: LoopbackHub, journal: Journal) -> None:
    hub.renamed["org/earlier"] = "org/whole"
    folder = download(journal, "org/earlier", endpoint=hub.endpoint, retry=QUICK)
    record = downloads.read_record(folder)
    assert record is not None
    assert (record.asked, record.model.id) == ("org/earlier", "org/whole")
    assert local_folder("org/earlier") == folder


def test_too_many_requests_are_waited_for(hub: LoopbackHub, journal: Journal) -> None:
    hub.statuses = [(429, {"Retry-After": "1"}), (503, {})]
    waits = []
    stop = threading.Event()
    stop.wait = lambda seconds=None: waits.append(seconds)  # type: ignore[method-assign,assignment,func-returns-value]
    Hub(hub.endpoint, retry=QUICK, stop=stop).facts("org/whole")
    assert waits == [1.0, QUICK.pause_s * 2]


def test_a_wait_that_is_too_long_is_told(hub: LoopbackHub) -> None:
    hub.statuses = [(429, {"Retry-After": "3600"})]
    refused(hub, "org/whole", "hub-busy", "429")


def test_a_hub_that_stays_broken(hub: LoopbackHub, journal: Journal) -> None:
    hub.statuses = [(500, {})] * QUICK.tries
    refused(hub, "org/whole", "hub-busy", "500", journal)
    assert len(journal.of("waiting")) == QUICK.tries - 1


def test_a_hub_that_is_not_there(home: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TunesmithError) as caught:
            download(Journal(), "org/whole", endpoint=address, retry=QUICK)
    assert caught.value.code == "hub-offline"


@pytest.mark.parametrize("kind", [Hub, ModelScope])
@pytest.mark.parametrize("words", [("search", "phi"), ("facts", "org/name"), ("card", "org/name")])
def test_a_question_is_given_up_soon(
    kind: type[Hub], words: tuple[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    stop = threading.Event()
    stop.wait = lambda seconds=None: waits.append(seconds)  # type: ignore[method-assign,assignment,func-returns-value]
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TunesmithError) as caught:
            getattr(kind(address, stop=stop), words[0])(words[1])
    assert caught.value.code == "hub-offline"
    assert waits == [1.0]
    assert caught.value.message == f"{address.removeprefix('http://')} can't be reached."


def test_an_answer_that_never_comes_is_given_up(home: Path) -> None:
    assert ASKING.tries * ASKING.answer_s + ASKING.pause_s <= 15
    never = threading.Event()
    brief = dataclasses.replace(ASKING, answer_s=0.02, pause_s=0.0)
    attempts = Attempts(brief, "org/whole", "", threading.Event(), lambda _error, _pause_s: None)
    with pytest.raises(TunesmithError, match="sent nothing for too long"):
        attempts.run(never.wait)
    never.set()


def test_only_a_download_that_has_begun_is_patient(
    hub: LoopbackHub, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunesmith_engine.hub.download.ASKING", dataclasses.replace(QUICK, tries=2))
    monkeypatch.setattr("tunesmith_engine.hub.download.Retry", lambda: QUICK)

    def waits() -> int:
        before = len(journal.of("waiting"))
        with pytest.raises(TunesmithError):
            download(journal, "org/whole", endpoint=hub.endpoint)
        return len(journal.of("waiting")) - before

    hub.statuses = [(500, {})] * 2
    assert waits() == 1
    hub.fault = lambda name, _start: Fault("500") if name == "model.safetensors" else None
    assert waits() == QUICK.tries - 1
    hub.statuses = [(500, {})] * QUICK.tries
    assert waits() == QUICK.tries - 1


def test_the_offline_switch(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused(hub, "org/whole", "hub-offline", "offline switch")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_wrong_hash_is_refused(name: str, hub: LoopbackHub) -> None:
    hub.repositories["org/whole"].wrong_hash = name
    refused(hub, "org/whole", "download-damaged", name)
    assert not list(downloads.staging_of(hub_folder("org/whole")).glob(f"{name}*"))


def test_one_flipped_byte_is_found_and_the_file_fetched_again(
    hub: LoopbackHub, whole_model: Path, journal: Journal
) -> None:
    flips = iter(["flip"])
    hub.fault = lambda name, _start: (
        Fault(kind) if name == "model.safetensors" and (kind := next(flips, "")) else None
    )
    folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    assert (folder / "model.safetensors").read_bytes() == (whole_model / "model.safetensors").read_bytes()
    assert [name for name, _ in hub.requests].count("model.safetensors") == 2


def test_a_server_that_ignores_ranges_costs_no_byte_on_the_disk(
    hub: LoopbackHub, whole_model: Path, journal: Journal
) -> None:
    faults = iter([Fault("cut", 30_000), Fault("ignore-range"), Fault("cut", 50_000)])
    hub.fault = lambda name, _start: next(faults, None) if name == "model.safetensors" else None
    folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    assert (folder / "model.safetensors").read_bytes() == (whole_model / "model.safetensors").read_bytes()
    starts = [start for name, start in hub.requests if name == "model.safetensors"]
    assert starts == [0, 30_000], "the second answer brings the rest"


def test_a_stalled_server_is_left(hub: LoopbackHub, journal: Journal) -> None:
    faults = iter([Fault("stall", 8192)])
    hub.fault = lambda name, _start: next(faults, None) if name == "model.safetensors" else None
    download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    assert [wait["code"] for wait in journal.of("waiting")] == ["hub-offline"]
    assert ("model.safetensors", 8192) in hub.requests


def test_a_stop_keeps_what_arrived(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunesmith_engine.hub.download.TELL_S", 0.01)
    hub.fault = lambda name, _start: Fault("stall", 8192) if name == "model.safetensors" else None

    class Interrupting(Journal):
        def event(self, kind: str, /, **data: object) -> None:
            if kind == "progress" and any(start for name, start in hub.requests if name == "model.safetensors"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(Interrupting(), "org/whole", endpoint=hub.endpoint, retry=QUICK)
    (begun,) = downloads.unfinished()
    assert 8192 <= begun.done_bytes() < begun.total_bytes
    downloads.discard(begun)
    assert list(downloads.unfinished()) == []


def test_a_disk_that_is_too_small_is_told_before_a_byte(
    hub: LoopbackHub, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _path: downloads.SPARE_BYTES)
    refused(hub, "org/whole", "disk-full")
    assert [name for name, _ in hub.requests] == ["config.json"], "for its facts"


def test_a_disk_that_fills_up(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, journal: Journal) -> None:
    replace = files.replace

    def full(source: Path, target: Path) -> None:
        if target.name == "model.safetensors":
            raise OSError(errno.ENOSPC, "full", str(target))
        replace(source, target)

    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(OSError, match="full"):
        download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    monkeypatch.undo()
    monkeypatch.setenv("TUNESMITH_HOME", str(downloads.staging_of(hub_folder("org/whole")).parents[1]))
    assert not hub_folder("org/whole").exists()


def test_two_windows_do_not_collide(hub: LoopbackHub) -> None:
    with downloads.held(hub_folder("org/whole")):
        refused(hub, "org/whole", "download-busy")


def test_a_newer_commit_keeps_files_of_the_same_content(hub: LoopbackHub, journal: Journal) -> None:
    hub.fault = lambda name, _start: Fault("500") if name == "model.safetensors" else None
    refused(hub, "org/whole", "hub-busy")
    hub.fault = lambda _name, _start: None
    repository = hub.repositories["org/whole"]
    repository.commit = "f" * 40
    repository.files["README.md"] = b"# Newer\n"
    hub.requests.clear()
    folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    assert (folder / "README.md").read_bytes() == b"# Newer\n"
    assert sorted(name for name, _ in hub.requests) == ["README.md", "config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["pytorch_model.bin", "config.json"], "model-pickle-refused", "pytorch_model.bin"),
        (["tiny.Q4_K_M.gguf"], "hub-no-model", "GGUF"),
        (["adapter_config.json", "adapter_model.safetensors"], "hub-no-model", "adapter"),
        (["README.md"], "hub-no-model", "no model.safetensors"),
        (["model.safetensors", "con.json"], "hub-answer-wrong", "con.json"),
        (["model.safetensors", "a.json", "A.json"], "hub-answer-wrong", "upper and lower"),
    ],
)
def test_repositories_that_are_no_model(names: list[str], code: str, words: str, hub: LoopbackHub) -> None:
    hub.repositories["org/other"] = Repository(dict.fromkeys(names, b"{}"))
    refused(hub, "org/other", code, words)


def test_a_model_that_can_not_be_trained_costs_no_weights(hub: LoopbackHub, journal: Journal) -> None:
    hub.repositories["org/whole"].files["config.json"] = b'{"model_type": "t5", "is_encoder_decoder": true}'
    refused(hub, "org/whole", "model-kind-unsupported")
    assert "model.safetensors" not in [name for name, _ in hub.requests]
    assert list(downloads.unfinished()) == []


def test_another_owner_of_the_name_is_refused(hub: LoopbackHub, whole_model: Path, journal: Journal) -> None:
    hub.repositories["other/whole"] = repository_of(whole_model)
    hub.renamed["org/given-up"] = "other/whole"
    error = refused(hub, "org/given-up", "hub-owner-changed", "belongs to other")
    assert error.link == f"{hub.endpoint}/other/whole"
    assert list(downloads.unfinished()) == []
    assert hub.requests == [("config.json", 0)], "nothing but the facts was looked at"


def test_what_was_refused_is_not_left_unfinished(
    hub: LoopbackHub, whole_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["org/gated"] = repository_of(whole_model, gated="manual", token=TOKEN)
    refused(hub, "org/gated", "hub-gated-401")
    hub.repositories["org/broken"] = broken = repository_of(whole_model)
    broken.files["model.safetensors"] = broken.files["model.safetensors"][:-1000]
    refused(hub, "org/broken", "model-files-missing-or-corrupt")
    monkeypatch.setattr(downloads.files, "free_bytes", lambda _folder: 1000)
    refused(hub, "org/whole", "disk-full")
    assert list(downloads.unfinished()) == []


def test_access_that_is_lost_on_the_way_keeps_what_arrived(hub: LoopbackHub) -> None:
    faults = iter([Fault("cut", 30_000), Fault("403")])
    hub.fault = lambda name, _start: next(faults, None) if name == "model.safetensors" else None
    refused(hub, "org/whole", "hub-gated-401")
    (begun,) = downloads.unfinished()
    assert begun.done_bytes() > 30_000


def test_the_card_of_a_model(hub: LoopbackHub, whole_model: Path) -> None:
    seen = Hub(hub.endpoint, retry=QUICK)
    assert seen.card("org/whole").endswith("# Tiny\n")
    assert seen.card("org/sharded") == "", "it has none"
    hub.repositories["org/gated"] = repository_of(whole_model, gated="manual", token=TOKEN)
    assert seen.card("org/gated") == "", "not before access was granted"
    hub.statuses = []
    hub.fault = lambda _name, _start: Fault("500")
    with pytest.raises(TunesmithError, match="500"):
        seen.card("org/whole")
