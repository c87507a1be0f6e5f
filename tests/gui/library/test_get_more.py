"""Get more: the curated list, the filters, a search of the hub, and what stands in its way."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.library.conftest import Shelves, shown
from tests.gui.library.driving import GPU, Scripted, banners, downloaded, hub_model, last, placed, press, shelf_of
from tests.gui.run_folders import texts
from tunesmith_core.curated_models import CuratedModel, curated_models, own_list_path
from tunesmith_core.operations.kinds.hub import SearchSpec
from tunesmith_gui.library.get_more import GetMore
from tunesmith_gui.library.offer_row import OfferRow
from tunesmith_gui.library.offers import FAMILIES, LICENSES, Wanted, curated_offer, fits_of, hub_offer, offer_words
from tunesmith_gui.library.page import LibraryPage
from tunesmith_gui.widgets.status_chip import StatusChip
from tunesmith_gui.widgets.token_dialog import TokenDialog


@pytest.fixture
def more(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> GetMore:
    """The second tab, on a computer with a GPU."""
    shown(page, qtbot)
    page.tabs.set_value("more")
    settle()
    return page.more


def names(rows: QWidget) -> list[str]:
    return [row.offer.id for row in rows.findChildren(OfferRow) if row.isVisibleTo(rows)]


def test_the_curated_list_comes_first_with_its_date(more: GetMore) -> None:
    curated = curated_models()
    assert names(more.curated) == [each.id for each in curated.models]
    assert f"as of {curated.date}" in texts(more)
    assert names(more.results) == []
    first = more.curated.findChildren(OfferRow)[0]
    assert [chip.text.partition(":")[0] for chip in first.findChildren(StatusChip)] == ["QLoRA", "LoRA"]


def test_filters_narrow_the_list_at_once(more: GetMore, qtbot: QtBot) -> None:
    more.text.setText("smollm2 instruct")
    qtbot.waitUntil(lambda: bool(names(more.curated)) and all("SmolLM2" in each for each in names(more.curated)))
    more.text.setText("Qwen-3 instruct")
    qwens = [each.id for each in curated_models().models if each.family == "Qwen3"]
    qtbot.waitUntil(lambda: names(more.curated) == qwens)
    more.text.clear()
    more.sizes.setCurrentIndex(more.sizes.findData("9"))
    settle()
    billions = {each.id: each.num_parameters / 1e9 for each in curated_models().models}
    assert names(more.curated)
    assert all(4 < billions[each] <= 9 for each in names(more.curated))
    more.text.setText("no model is called this")
    qtbot.waitUntil(lambda: "No model of the list matches" in texts(more))


def offer(**more: Any) -> Any:
    facts: dict[str, Any] = {"num_parameters": 8_000_000_000, "licence": "MIT", "model_type": "llama"}
    model = CuratedModel("Org/Big-8B", "Big", **(facts | more))
    return curated_offer(model, fits_of([model.num_parameters], GPU), {})


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        (Wanted(), True),
        (Wanted(text="big 8b"), True),
        (Wanted(text="big 9b"), False),
        (Wanted(text="big8B m-i-t"), True),
        (Wanted(text="big instruct"), False),
        (Wanted(family="llama"), True),
        (Wanted(family="qwen3"), False),
        (Wanted(licence="mit"), True),
        (Wanted(licence="apache-2.0"), False),
        (Wanted(size="9"), True),
        (Wanted(size="4"), False),
        (Wanted(size="more"), False),
        (Wanted(only_fitting=True), True),
    ],
)
def test_what_an_offer_is_taken_for(wanted: Wanted, takes: bool) -> None:
    assert wanted.takes(offer()) is takes


def test_every_family_of_the_list_can_be_filtered_for() -> None:
    assert {each.model_type for each in curated_models().models} <= FAMILIES.keys()
    assert {each.licence for each in curated_models().models} <= set(LICENSES)


def test_what_is_not_known_of_an_offer_counts_against_it() -> None:
    unknown = offer(num_parameters=0, licence="")
    assert Wanted().takes(unknown)
    for wanted in (Wanted(size="1"), Wanted(licence="mit"), Wanted(only_fitting=True)):
        assert not wanted.takes(unknown)
    assert not Wanted(only_fitting=True).takes(offer(num_parameters=70_000_000_000))
    assert "size unknown" in offer_words(unknown)
    assert "license unknown" in offer_words(unknown)


def test_the_size_follows_the_number_format() -> None:
    half, whole = (hub_offer(hub_model(dtype=each), {}, {}) for each in ("BF16", "F32"))
    assert (half.size_bytes, whole.size_bytes) == (3_000_000_000, 6_000_000_000)


def test_a_search_asks_the_hub_for_what_the_filters_say(more: GetMore, qtbot: QtBot) -> None:
    more.text.setText(" coder ")
    more.family.setCurrentIndex(more.family.findData("qwen3"))
    more.sizes.setCurrentIndex(more.sizes.findData("4"))
    more.licence.setCurrentIndex(more.licence.findData("mit"))
    more.go.click()
    task = last("search-hub")
    assert task.spec == SearchSpec("coder", "qwen3", "mit", 1.0, 4.0)
    settle()
    assert more.searching.isVisible()
    found = [
        hub_model("org/open"),
        hub_model("org/gated", gated="manual"),
        hub_model("org/huge", num_parameters=70 * 10**9),
    ]
    task.answer([each.to_dict() for each in found])
    settle()
    assert not more.searching.isVisible()
    assert names(more.results) == ["org/open", "org/gated", "org/huge"]
    rows = {row.offer.id: row for row in more.results.findChildren(OfferRow)}
    assert "1.5 B parameters" in rows["org/open"].facts.text()
    assert "Access on request" in [chip.text for chip in rows["org/gated"].chips]
    more.fitting.setChecked(True)
    settle()
    assert names(more.results) == ["org/open", "org/gated"]


def test_a_search_moves_no_row(more: GetMore) -> None:
    more.search()
    last("search-hub").answer([hub_model("org/open").to_dict()])
    settle()
    (row,) = more.results.findChildren(OfferRow)
    before = row.mapTo(more, row.rect().topLeft())
    more.search()
    settle()
    assert more.searching.isVisible()
    assert row.mapTo(more, row.rect().topLeft()) == before
    last("search-hub").answer([])


def test_a_newer_search_takes_the_place_of_an_older_one(more: GetMore) -> None:
    more.search()
    first = last("search-hub")
    more.search()
    assert first.cancelled
    assert last("search-hub") is not first
    more.cancel.click()
    settle()
    assert last("search-hub").cancelled
    assert not more.searching.isVisible()


def test_nothing_found_is_said(more: GetMore) -> None:
    more.search()
    last("search-hub").answer([])
    settle()
    assert more.nothing.isVisible()


def test_a_search_that_fails_is_told_and_can_be_repeated(more: GetMore, page: LibraryPage) -> None:
    more.search()
    last("search-hub").refuse("hub-offline", "hub: the connection broke.")
    settle()
    assert "The model hub can't be reached" in banners(more)
    assert names(more.curated), "the list needs no network"
    press(more, "Try again")
    settle()
    assert "can't be reached" not in banners(more)
    went: list[Any] = []
    page.navigate.connect(lambda *words: went.append(words))
    last("search-hub").refuse("environment-missing", "no environment")
    settle()
    press(more, "Set up")
    assert went == [("setup", None)]
    last("search-hub").refuse("hub-ssl-or-proxy", "The proxy can't be reached.")
    settle()
    press(more, "Open settings")
    assert went[1:] == [("settings", "proxy")]


def test_without_a_network_the_list_is_searched_and_that_is_said(more: GetMore, page: LibraryPage) -> None:
    more.search()
    last("search-hub").answer([hub_model("org/former").to_dict()])
    more.text.setText("smollm")
    more.search()
    last("search-hub").refuse("hub-offline", "hub: the connection broke.")
    settle()
    assert names(more.results) == [], "they are the answer to another question"
    assert names(more.curated)
    assert all("smollm" in name.lower() for name in names(more.curated))
    assert "Offline: from the list of Tunesmith" in texts(more)
    more.text.setText("no such model")
    more.search()
    last("search-hub").refuse("hub-offline", "hub: the connection broke.")
    settle()
    assert names(more.curated) == []
    assert "Offline: no model of the list matches" in texts(more)
    more.search()
    last("search-hub").answer([])
    settle()
    assert "Offline" not in texts(more)
    page.context.preferences.change(offline=True)
    settle()
    assert "Offline: no model of the list matches" in texts(more)


def test_a_search_that_fails_says_nothing_of_what_the_hub_has(more: GetMore) -> None:
    more.search()
    last("search-hub").answer([])
    settle()
    more.search()
    assert not more.nothing.isVisible()
    last("search-hub").refuse("hub-offline", "hub: the connection broke.")
    settle()
    assert not more.nothing.isVisible()


def test_a_refused_token_can_be_replaced(more: GetMore) -> None:
    more.search()
    last("search-hub").refuse("hub-token-refused", "the hub did not accept the access token.")
    settle()
    press(more, "Enter a token…")
    (dialog,) = (each for each in QApplication.topLevelWidgets() if isinstance(each, TokenDialog) and each.isVisible())
    before = last("search-hub")
    dialog.saved.emit()
    dialog.reject()
    settle()
    assert last("search-hub") is not before, "it is searched again"


def test_a_damaged_list_of_ones_own_is_told(page: LibraryPage, qtbot: QtBot) -> None:
    own_list_path().parent.mkdir(exist_ok=True)
    own_list_path().write_text("{", encoding="utf-8")
    more = GetMore(page)
    more.show()
    qtbot.waitUntil(lambda: str(own_list_path()) in banners(more))
    assert names(more.curated), "ours is shown"


def test_offline_is_a_plain_state(more: GetMore, page: LibraryPage) -> None:
    page.context.preferences.change(offline=True)
    settle()
    assert "You are working offline" in banners(more)
    assert not more.go.isEnabled()
    offered = more.curated.findChildren(OfferRow)[0].get
    assert not offered.isEnabled()
    assert "working offline" in offered.toolTip()
    number = len(Scripted.made)
    more.search()
    assert len(Scripted.made) == number
    went: list[Any] = []
    page.navigate.connect(lambda *words: went.append(words))
    press(more, "Open settings")
    assert went == [("settings", "offline")]
    page.context.preferences.change(offline=False)
    settle()
    assert "offline" not in banners(more)
    assert more.go.isEnabled()
    assert offered.isEnabled()
    assert offered.toolTip() == ""


def test_what_is_here_is_not_offered_again(page: LibraryPage, shelves: Shelves, more: GetMore, qtbot: QtBot) -> None:
    first, second, third, other = (each.id for each in curated_models().models[:4])
    # The example's model came without a record of a hub.
    bundled = placed(second.rpartition("/")[2])
    shelves.shelf = shelf_of(downloaded(first), bundled, placed(third, "huggingface"), placed(other, is_gguf=True))
    went: list[Any] = []
    page.navigate.connect(lambda *words: went.append(words))
    shown(page, qtbot)
    rows = {row.offer.id: row for row in more.curated.findChildren(OfferRow) if row.isVisibleTo(more.curated)}
    for here in (first, second, third):
        assert rows[here].get.text() == "Train with it"
        assert "On this computer" in [chip.text for chip in rows[here].chips]
    # What is here is judged by its shapes, not by its size.
    assert rows[first].offer.fits == shelves.shelf.own[0].fits
    rows[second].get.click()
    assert went == [("train", [bundled.model.path])]
    assert rows[other].get.text() == "Download…"


def test_a_window_in_another_language_goes_on_searching(page: LibraryPage, more: GetMore, qtbot: QtBot) -> None:
    more.text.setText("coder")
    more.family.setCurrentIndex(more.family.findData("qwen3"))
    more.search()
    last("search-hub").answer([hub_model("org/first").to_dict()])
    settle()
    more.search()
    asked = last("search-hub")
    other = LibraryPage(page.context)
    qtbot.addWidget(other)
    other.remember(page.memory())
    assert other.tabs.value == "more"
    assert last("search-hub") is not asked
    assert last("search-hub").begun
    assert last("search-hub").spec == asked.spec
    settle()
    assert names(other.more.results) == ["org/first"]
