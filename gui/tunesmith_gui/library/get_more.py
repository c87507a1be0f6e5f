"""Get more: the curated list, and above it what a hub found once it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from tunesmith_core import model_library
from tunesmith_core.curated_models import CuratedList, curated_models
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hub_repository import HubModel
from tunesmith_core.operations.kinds.hub import SEARCH
from tunesmith_gui.background import Job
from tunesmith_gui.library.offer_row import OfferRow
from tunesmith_gui.library.offers import (
    FAMILIES,
    LICENSES,
    SIZES,
    Fits,
    Offer,
    Wanted,
    curated_offer,
    fits_of,
    hub_offer,
)
from tunesmith_gui.library.row_list import RowList
from tunesmith_gui.library.shelf import Placed, Shelf
from tunesmith_gui.page import Page
from tunesmith_gui.plain_text import add_choice, set_tip, without_shortcut
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.error_banner import Action, error_banner
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.token_dialog import TokenDialog

_TYPING_PAUSE_MS = 150
_COMBO_LETTERS = 14


@dataclass(frozen=True, slots=True)
class Search:
    """What a window that is built again needs.

    Attributes:
        is_going: whether the hub is being asked.
        found: what it answered; None before.
    """

    wanted: Wanted
    is_going: bool
    found: list[HubModel] | None


class GetMore(QWidget):
    """The second tab.

    Signals:
        asked: (str hub id) the person wants to see a model or have it.
    """

    asked = Signal(str)

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self._page = page
        self._curated: CuratedList | None = None
        self._shelf: Shelf | None = None
        self._found: list[HubModel] | None = None
        self._is_cut_off = False
        self._fits: dict[int, Mapping[str, str]] = {}
        self._task: OperationTask | None = None
        self._banner: Banner | None = None
        self._typing = QTimer(self)
        self._typing.setSingleShot(True)
        self._typing.setInterval(_TYPING_PAUSE_MS)
        self._typing.timeout.connect(self._show)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 2)
        self._build_filters(column)
        self._build_results(column)
        page.context.preferences.changed.connect(self._show)
        Job.start(self, curated_models, self._take_curated, self._show_error)
        self._show()

    def _build_filters(self, column: QVBoxLayout) -> None:
        self.text = QLineEdit(self)
        self.text.setPlaceholderText(self.tr("Name of a model, such as qwen3 instruct"))
        self.text.setAccessibleName(self.tr("Search for models"))
        self.text.setClearButtonEnabled(True)
        self.text.textChanged.connect(self._typing.start)
        self.text.returnPressed.connect(self.search)
        self.go = button(self.tr("Search the hub"), self.search, kind="primary", icon_name="search", parent=self)
        column.addWidget(SideBySide(self.text, self.go, first_letters=24, parent=self))
        sizes = {
            "any": self.tr("Any size"),
            "1": self.tr("Up to 1 B"),
            "4": self.tr("1 to 4 B"),
            "9": self.tr("4 to 9 B"),
            "20": self.tr("9 to 20 B"),
            "more": self.tr("Over 20 B"),
        }
        any_license = [("", self.tr("Any license")), *((each, each) for each in LICENSES)]
        self.family = self._combo(self.tr("Family"), [("", self.tr("Any family")), *FAMILIES.items()])
        self.sizes = self._combo(self.tr("Number of parameters"), [(each, sizes[each]) for each in SIZES])
        self.licence = self._combo(self.tr("License"), any_license)
        self.fitting = QCheckBox(without_shortcut(self.tr("Fits this computer")), self)
        self.fitting.toggled.connect(lambda _on: self._show())
        column.addWidget(FlowRow([self.family, self.sizes, self.licence, self.fitting], self))

    def _combo(self, name: str, choices: list[tuple[str, str]]) -> QComboBox:
        combo = QComboBox(self)
        combo.setAccessibleName(name)
        for value, words in choices:
            add_choice(combo, words, value)
        combo.setMinimumContentsLength(_COMBO_LETTERS)
        combo.currentIndexChanged.connect(lambda _place: self._show())
        guard_wheel(combo)
        return combo

    def _build_results(self, column: QVBoxLayout) -> None:
        self._news = QVBoxLayout()
        column.addLayout(self._news)
        self.searching = QWidget(self)
        self.cancel = button(self.tr("Cancel"), self._cancel, kind="link", parent=self.searching)
        self.cancel.setAccessibleName(self.tr("Cancel the search"))
        words = SafeLabel(self.tr("Searching the hub…"), tone="muted", parent=self.searching)
        row = QVBoxLayout(self.searching)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(FlowRow([words, self.cancel], self.searching))
        # Beside the heading, so that a search moves no row.
        self._hub_line = QWidget(self)
        self._hub_head = SafeLabel(self.tr("From the hub"), role="heading", parent=self._hub_line)
        line = QHBoxLayout(self._hub_line)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(SPACE * 2)
        line.addWidget(self._hub_head)
        line.addWidget(self.searching, 1)
        self._hub_line.setMinimumHeight(self.searching.sizeHint().height())
        self._show_searching(False)
        nothing = self.tr("The hub has no such model. Try other words or fewer filters.")
        self.nothing = SafeLabel(nothing, tone="muted", wrap=True, parent=self)
        self.results = RowList(self._row, self)
        self._curated_head = SafeLabel(role="heading", wrap=True, parent=self)
        self.curated = RowList(self._row, self)
        self._no_curated = SafeLabel(tone="muted", wrap=True, parent=self)
        of_hub = (self._hub_line, self.nothing, self.results)
        for each in (*of_hub, self._curated_head, self.curated, self._no_curated):
            column.addWidget(each)

    # What is shown

    @property
    def wanted(self) -> Wanted:
        """What the person looks for."""
        return Wanted(
            self.text.text(),
            self.family.currentData(),
            self.licence.currentData(),
            self.sizes.currentData(),
            self.fitting.isChecked(),
        )

    def show_shelf(self, shelf: Shelf) -> None:
        """Take what is on this computer: the device, and which models are here."""
        if self._shelf is None or self._shelf.hardware != shelf.hardware:
            self._fits = {}
        self._shelf = shelf
        set_tip(self.fitting, core_text(model_library.fits_note(shelf.hardware)))
        self._weigh()

    def _row(self, offer: Offer) -> OfferRow:
        row = OfferRow(offer, self)
        row.set_offline(self._page.context.preferences.values.offline)
        row.asked.connect(self.asked)
        row.train_asked.connect(lambda folder: self._page.navigate.emit("train", [folder]))
        return row

    def _take_curated(self, curated: CuratedList) -> None:
        self._curated = curated
        if curated.problem is not None:
            self._put(error_banner(curated.problem, parent=self))
        self._weigh()

    def _weigh(self) -> None:
        """Find out whether the models would fit, then show them."""
        models = [*(self._curated.models if self._curated else ()), *(self._found or ())]
        sizes = {each.num_parameters for each in models} - self._fits.keys()
        if self._shelf is None or not sizes:
            self._show()
            return
        hardware = self._shelf.hardware

        def take(fits: Fits) -> None:
            if self._shelf is not None and self._shelf.hardware == hardware:
                self._fits.update(fits)
            self._show()

        Job.start(self, lambda: fits_of(sizes, hardware), take, self._show_error)

    def here(self) -> dict[str, Placed]:
        """Return the models on this computer that can be trained, by hub id."""
        listed = self._curated.models if self._curated else ()
        return self._shelf.trainable(each.id for each in listed) if self._shelf else {}

    def _show(self) -> None:
        self._typing.stop()
        wanted, here = self.wanted, self.here()
        models = self._curated.models if self._curated else ()
        offers = (curated_offer(each, self._fits, here) for each in models)
        listed = {each.id: each for each in offers if wanted.takes(each)}
        self.curated.show_items(listed)
        date = self._curated.date if self._curated else ""
        is_offline = self._is_cut_off or self._page.context.preferences.values.offline
        usual, cut_off = self.tr("Recommended, as of %1"), self.tr("Offline: from the list of Tunesmith, as of %1")
        self._curated_head.setText(fill(cut_off if is_offline else usual, date))
        self._no_curated.setText(
            self.tr("Offline: no model of the list matches, and the hub can't be asked.")
            if is_offline
            else self.tr("No model of the list matches. Search the hub for others.")
        )
        self._no_curated.setVisible(not listed and self._curated is not None)
        contexts = {each.id: each.context_length for each in models}
        found = (hub_offer(each, self._fits, here, contexts) for each in self._found or ())
        # Words, family, license and size are the hub's business; only it knows what they mean for it.
        fitting = replace(Wanted(), only_fitting=wanted.only_fitting)
        shown = {each.id: each for each in found if fitting.takes(each)}
        self.results.show_items(shown)
        self._show_searching(self._task is not None)
        self.nothing.setVisible(self._found is not None and not shown)
        self._show_network()

    def _show_network(self) -> None:
        offline = self._page.context.preferences.values.offline
        self.go.setEnabled(not offline)
        for row in self.findChildren(OfferRow):
            row.set_offline(offline)
        if offline:
            settings = (self.tr("Open settings"), lambda: self._page.navigate.emit("settings", "offline"))
            words = self.tr("Nothing is searched for or downloaded. Models on this computer can be used.")
            self._put(Banner("neutral", self.tr("You are working offline"), words, actions=(settings,), parent=self))
        elif self._banner is not None and self._banner.property("banner") == "neutral":
            self._put(None)

    def _put(self, banner: Banner | None) -> None:
        if self._banner is not None:
            self._banner.hide()
            self._banner.deleteLater()
        self._banner = banner
        if banner is not None:
            self._news.addWidget(banner)

    # Searching

    def _show_searching(self, searching: bool) -> None:
        self.searching.setVisible(searching)
        self._hub_head.setVisible(self._found is not None)
        self._hub_line.setVisible(searching or self._found is not None)

    def search(self) -> None:
        """Ask the hub for what the filters say."""
        if self._page.context.preferences.values.offline:
            return
        self._cancel()
        self._put(None)
        if not self._found:
            # That an earlier search found nothing says nothing about this one.
            self._found = None
            self._show()
        self._task = OperationTask(SEARCH, self.wanted.spec(), self)
        self._task.succeeded.connect(self._take_found)
        self._task.failed.connect(self._take_failure)
        self._show_searching(True)
        self._task.start()

    def memory(self) -> Search:
        """Return the search as it is."""
        return Search(self.wanted, self._task is not None, self._found)

    def remember(self, search: Search) -> None:
        """Show a search again, and begin it again where it had no answer yet."""
        wanted = search.wanted
        self.text.setText(wanted.text)
        for combo, value in ((self.family, wanted.family), (self.licence, wanted.licence), (self.sizes, wanted.size)):
            combo.setCurrentIndex(combo.findData(value))
        self.fitting.setChecked(wanted.only_fitting)
        self._found = search.found
        self._weigh()
        if search.is_going:
            self.search()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._show_searching(False)

    def _take_found(self, answer: list[dict[str, object]]) -> None:
        self._task = None
        self._show_searching(False)
        self._is_cut_off = False
        self._found = [HubModel.from_dict(each) for each in answer]
        self._weigh()

    def _take_failure(self, error: TunesmithError) -> None:
        # What was found before was looked for by other words.
        self._found, self._is_cut_off = None, error.code == "hub-offline"
        self._show()
        self._show_error(error)

    def _show_error(self, error: TunesmithError) -> None:
        self._task = None
        self._show_searching(False)
        actions: tuple[Action, ...] = ((self.tr("Try again"), self.search),)
        if error.code == "environment-missing":
            actions = ((self.tr("Set up"), lambda: self._page.navigate.emit("setup", None)),)
        elif error.code == "hub-ssl-or-proxy":
            settings = (self.tr("Open settings"), lambda: self._page.navigate.emit("settings", "proxy"))
            actions = (settings, *actions)
        elif error.code == "hub-token-refused":
            actions = ((self.tr("Enter a token…"), self._ask_token),)
        self._put(error_banner(error, actions=actions, parent=self))

    def _ask_token(self) -> None:
        dialog = TokenDialog(self.window())
        dialog.saved.connect(self.search)
        dialog.open()

    def focus_first(self) -> None:
        """Put the keyboard where the tab begins."""
        self.text.setFocus(Qt.FocusReason.OtherFocusReason)
