"""Try it: ask what a run has trained, see the base model's answer beside it, keep and reuse what was said."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core import conversations
from tunesmith_core.answering import FREE_THE_GPU
from tunesmith_core.conversations import Conversation
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import restore_base
from tunesmith_core.operations.kinds.chat import TUNED
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, display_name
from tunesmith_core.spec import RunSpec
from tunesmith_gui import tr
from tunesmith_gui.chat.composer import Composer
from tunesmith_gui.chat.drawer import SettingsDrawer
from tunesmith_gui.chat.list_pane import ConversationList
from tunesmith_gui.chat.model import ChatModel
from tunesmith_gui.chat.model_page import ModelPage
from tunesmith_gui.chat.service import ModelState
from tunesmith_gui.chat.turn_view import TurnView
from tunesmith_gui.chat.weights import Weights, WeightsBox, find_weights
from tunesmith_gui.context import Context
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.banner import Banner, BannerAction
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.error_banner import error_details
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import ElidedLabel
from tunesmith_gui.widgets.save_file import ask_where_to_save
from tunesmith_gui.widgets.side_by_side import SideBySide
from tunesmith_gui.widgets.status_chip import StatusChip

NAME_LETTERS = 42
"""Of the run's name: where it has no room for so many, what can be chosen goes below it."""
ANSWER_LETTERS = 40
"""Of an answer: where the sides leave no room for so many, the list of conversations makes way."""
KEEP_MS = 2000
"""Of an answer under way no more is lost when the program ends."""
REPAINT_MS = 100
"""Pieces of an answer that come within this time are shown together."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is in the folder of a run.

    Attributes:
        name: what the run is called.
        spec: its settings.
        system: the system prompt that conversations begin with.
        weights: which can answer.
        talks: its conversations.
    """

    run: Run
    name: str
    spec: RunSpec
    system: str
    weights: Weights
    talks: list[Conversation]


class ChatPage(ModelPage):
    """Build and bind: what is shown is folded in `chat.model`, the answers come from `chat.service`."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.model = ChatModel()
        self._system = ""
        self._banner: Banner | None = None
        self._is_at_end = True
        self._views: list[TurnView] = []
        self._saving = False
        self._unsaved: dict[str, Callable[[], None]] = {}
        self._examples: Path | None = None
        self._build()
        self._tick = QTimer(self)
        self._tick.setSingleShot(True)
        self._tick.setInterval(REPAINT_MS)
        self._tick.timeout.connect(self._repaint)
        self._keep = QTimer(self)
        self._keep.setInterval(KEEP_MS)
        self._keep.timeout.connect(self._keep_piece)
        self._listen()

    # Building

    def _build(self) -> None:
        whole = self._whole()
        whole.addLayout(self._build_header())
        self._banner_place = QVBoxLayout()
        whole.addLayout(self._banner_place)
        row = QHBoxLayout()
        row.setSpacing(SPACE * 2)
        whole.addLayout(row, 1)
        self.list = ConversationList(self)
        self.list.new_asked.connect(self.new_conversation)
        self.list.chosen.connect(self._choose)
        self.list.renamed.connect(self._rename)
        self.list.delete_asked.connect(self._delete)
        row.addWidget(self.list)
        middle = QVBoxLayout()
        middle.setSpacing(SPACE)
        self._area, holder, self._turns = self._scrolling()
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.verticalScrollBar().rangeChanged.connect(self._keep_end_in_sight)
        self._area.verticalScrollBar().valueChanged.connect(self._note_place)
        self._empty = EmptyState(
            "chat",
            self.tr("Ask what you trained it for"),
            self.tr("Questions like those in your data show best what the model has learned."),
            parent=holder,
        )
        self._turns.addWidget(self._empty, 3)
        self._turns.addStretch(1)
        middle.addWidget(self._area, 1)
        self.composer = Composer(self)
        self.composer.asked.connect(self._ask)
        self.composer.stop_asked.connect(self.context.chat.stop_answer)
        self.composer.edit_canceled.connect(self._keep_turn)
        middle.addWidget(self.composer)
        row.addLayout(middle, 1)
        self.drawer = SettingsDrawer(self)
        self.drawer.changed.connect(self._on_settings)
        self.drawer.hide()
        row.addWidget(self.drawer)
        theme().changed.connect(self._fit_sides, Qt.ConnectionType.QueuedConnection)

    def _build_header(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        back = IconButton("chevron-left", self.tr("Back to the run"), lambda: self._go("dashboard"), parent=self)
        row.addWidget(back, 0, Qt.AlignmentFlag.AlignTop)
        self.name = ElidedLabel("", role="title", parent=self)
        self.chip = StatusChip(parent=self)
        self.weights = WeightsBox(self.tr("Checkpoint that answers"), self)
        self.weights.activated.connect(self._on_weights)
        self.compare = QCheckBox(self.tr("Compare with the model before this run"), self)
        self.compare.toggled.connect(self._on_compare)
        vote = button(self.tr("Blind vote"), lambda: self._go("vote"), icon_name="compare", parent=self)
        self.more = button(self.tr("Settings"), self._toggle_drawer, icon_name="settings", parent=self)
        self.more.setCheckable(True)
        self._controls = FlowRow((self.chip, self.weights, self.compare, vote, self.more), self)
        row.addWidget(SideBySide(self.name, self._controls, first_letters=NAME_LETTERS, parent=self), 1)
        return row

    # The contract with the window

    @property
    def title(self) -> str:
        """The run's name."""
        return tr.fill(self.tr("Try %1"), self._name) if self._name else ""

    def on_shown(self, argument: object = None) -> None:
        """Open the conversations of a run, or go on with those shown before."""
        if self._is_another(argument):
            self._open(self.context.runs.run(str(argument)))
        elif self.run is not None and self._banner is None:
            self._be_loaded()
        self.composer.box.setFocus(Qt.FocusReason.OtherFocusReason)

    def perform(self, action: str) -> bool:
        """Stop an answer by keyboard."""
        if action == "stop_run" and self.model.answering:
            self.context.chat.stop_answer()
            return True
        return False

    # The run

    def _open(self, run: Run) -> None:
        if self.model.answering:
            self.context.chat.close()
        self.run, self._name, self.model = run, run.id, ChatModel()
        self._drop_banner()
        # First: loading says at once how far it is, and what is shown is painted again with the turns of the new run.
        self._rebuild()
        self._load()
        self.run_in_background(lambda: _look(run), self._take_found)

    def _take_found(self, found: _Found) -> None:
        if found.run is not self.run:
            return
        self._name, self._system = found.name, found.system
        self.weights.show_weights(found.weights, self.context.chat.checkpoint)
        self.model.show(found.talks, found.system)
        self._rebuild()
        self.title_changed.emit()
        if not self.model.current.turns:
            self.composer.write(next(iter(found.spec.evaluation.sample_prompts), ""))

    def _on_weights(self, _place: int) -> None:
        self._drop_banner()
        self._load(self.weights.step)

    # Asking

    def _ask(self, question: str) -> None:
        self._be_loaded()
        self._send(self.model.begin(question, self._step()))

    def _ask_again(self, number: int) -> None:
        if self._may_replace(number):
            self._be_loaded()
            self._send(self.model.again(number, self._step()))

    def _may_replace(self, number: int) -> bool:
        """Ask before turns that follow one are lost with its answer."""
        from tunesmith_gui.widgets.confirm import ConfirmDialog

        following = len(self.model.current.turns) - number - 1
        if not following:
            return True
        dialog = ConfirmDialog(
            self.tr("Ask this question again?"),
            self.model.current.turns[number].question,
            tr.fill(self.tr("Questions after it that will be removed, with their answers: %1."), tr.number(following)),
            self.tr("Ask and remove them"),
            self.window(),
            danger=True,
        )
        return bool(dialog.exec())

    def _be_loaded(self) -> None:
        self._drop_banner()
        service, checkpoint = self.context.chat, self.weights.step
        if service.state is ModelState.OFF or (service.run, service.checkpoint) != (self.run, checkpoint):
            self._load(checkpoint)

    def _step(self) -> int:
        return int(self.context.chat.ready.get("step") or 0)

    def _send(self, sides: tuple[str, ...]) -> None:
        talk, self._is_at_end = self.model.current, True
        self.context.chat.ask(sides, {side: talk.messages(side) for side in sides}, talk.sampling, self)
        self._save()
        self._keep.start()
        # The button that was pressed goes with its turn, and the focus would go to the rail.
        self.composer.box.setFocus(Qt.FocusReason.OtherFocusReason)
        self._rebuild()

    def _take(self, asker: object, event: Event) -> None:
        if asker is not self or not self.model.answering:
            return
        self.model.take(event)
        if not self.model.answering:
            self._end_answer()
        elif not self._tick.isActive():
            self._tick.start()

    def _end_answer(self) -> None:
        words = self.model.current.turns[-1].answers[TUNED].text
        self._announcer.say(tr.fill(self.tr("The model answered: %1"), words))
        self._take_back_too_long()
        self._save()
        self._repaint()
        self._show_state()

    def _take_back_too_long(self) -> None:
        """Put a question that the model can't read back into the box, to be shortened, as if it had not been asked."""
        error = next((each for each in self.model.errors.values() if each.code == "chat-too-long"), None)
        if error is None:
            return
        run, talk = self.run, self.model.current
        self.composer.write(self.model.take_back())
        if run is not None and talk not in self.model.conversations:
            self._erase(run, talk)
        self._show_banner(error, ())
        self._rebuild()

    def _fail(self, error: TunesmithError) -> None:
        if self.context.chat.run != self.run:
            return
        self.model.fail()
        actions = [(self.tr("Try again"), lambda: self._retry(self.context.chat.device))]
        if error.code in ("gpu-busy", "cuda-oom", "driver-missing", "torch-cpu-build"):
            actions.insert(0, (self.tr("Answer on the CPU"), lambda: self._retry("cpu")))
        if error.code == "environment-missing":
            actions = [(self.tr("Open Environment"), lambda: self.navigate.emit("environment", None))]
        if error.code == "model-deleted":
            actions = [(self.tr("Restore it"), self._restore_base)]
        self._show_banner(error, tuple(actions))
        self._rebuild()

    def _show_banner(self, error: TunesmithError, actions: tuple[BannerAction, ...]) -> None:
        """Show an error in few lines, for the answers need the room; what it may be in general is behind Details."""
        self._drop_banner()
        # The catalogue's step against a full GPU helps a training.
        hint = core_text(FREE_THE_GPU if error.code == "cuda-oom" else error.hint)
        self._banner = Banner(
            "error",
            core_text(error.title),
            "\n".join((core_text(error.message), hint)),
            details="\n".join((core_text(CODES[error.code].cause), error_details(error))),
            actions=actions,
            dismissable=True,
            parent=self,
        )
        self._banner_place.addWidget(self._banner)

    def _restore_base(self) -> None:
        run, device = self.run, self.context.chat.device
        if run is not None:
            self.run_in_background(lambda: restore_base(run), lambda _nothing: self._retry(device))

    def _retry(self, device: str) -> None:
        self._drop_banner()
        if self.run is not None:
            self.context.chat.open(self.run, self.weights.step, "cpu" if device == "cpu" else "auto")

    def _drop_banner(self) -> None:
        if self._banner is not None:
            self._banner_place.removeWidget(self._banner)
            self._banner.setParent(None)
            self._banner.deleteLater()
            self._banner = None

    def _act(self, number: int, action: str, side: str) -> None:
        talk = self.model.current
        if action == "edit":
            self.model.edited = number
            self.composer.write(talk.turns[number].question)
            self._show_state()
        elif action == "again":
            self._ask_again(number)
        elif action in ("earlier", "later"):
            self._show_answers(-1 if action == "earlier" else 1)
        elif action == "copy":
            QGuiApplication.clipboard().setText(talk.turns[number].answers[side].text)
            self.notify.emit("ok", self.tr("Copied"))
        else:
            self._save_example(number, side)

    def _show_answers(self, distance: int) -> None:
        """Show an earlier or later round of answers to the newest question; what is asked next follows on it."""
        self.model.show_answers(distance)
        self._save()
        self._rebuild()
        view = self._views[-1]
        wanted, other = (view.earlier, view.later) if distance < 0 else (view.later, view.earlier)
        (wanted if wanted.isEnabled() else other).setFocus(Qt.FocusReason.OtherFocusReason)

    def _keep_turn(self) -> None:
        self.model.edited = None
        self.composer.box.clear()
        self._show_state()

    def _save_example(self, number: int, side: str) -> None:
        from tunesmith_gui.chat.example_dialog import ExampleDialog

        turn = self.model.current.turns[number]
        dialog = ExampleDialog(turn.question, turn.answers[side].text, self.window())
        if not dialog.exec():
            return
        proposed = str(self._examples or "examples.jsonl")
        path = ask_where_to_save(
            self.window(), self.tr("Add the conversation to a data file"), proposed, "JSONL (*.jsonl)", appends=True
        )
        if path is None:
            return
        self._examples = path
        example = self.model.current.example(number, side, dialog.answer)

        def tell(num_rows: int) -> None:
            words = tr.fill(self.tr("Saved as row %1 of %2"), tr.number(num_rows), path.name)
            self.notify.emit("ok", words)

        self.run_in_background(lambda: conversations.append_example(path, example), tell)

    # Conversations

    def new_conversation(self) -> None:
        """Begin a conversation with the settings of the one that is shown."""
        before = self.model.current
        talk = Conversation(system=before.system, compares=before.compares, sampling=before.sampling)
        self.model.select(talk)
        self._rebuild()
        self.composer.box.setFocus(Qt.FocusReason.OtherFocusReason)

    def _choose(self, row: int) -> None:
        kept = self.model.conversations
        row -= self.list.list.count() - len(kept) if self.model.current not in kept else 0
        if 0 <= row < len(kept):
            self.model.select(kept[row])
            self._rebuild()

    def _rename(self, title: str) -> None:
        if self.model.current in self.model.conversations and title != self.model.current.title:
            self.model.current.title = title
            self._save()
            self._show_state()

    def _delete(self) -> None:
        from tunesmith_gui.widgets.confirm import ConfirmDialog

        run, talk = self.run, self.model.current
        dialog = ConfirmDialog(
            self.tr("Delete this conversation?"),
            talk.name,
            self.tr("This can’t be undone. Examples that were saved from it stay."),
            self.tr("Delete the conversation"),
            self.window(),
            danger=True,
        )
        if dialog.exec() and run is not None:
            self.model.forget(talk, self._system)
            self._rebuild()
            self._erase(run, talk)

    def _on_compare(self, compares: bool) -> None:
        if compares != self.model.current.compares:
            self.model.current.compares = compares
            self._save()

    def _on_settings(self) -> None:
        self.drawer.store(self.model.current)
        self._save()

    def _toggle_drawer(self) -> None:
        self.drawer.setVisible(self.more.isChecked())
        self._fit_sides()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width may have room for the list of conversations, or none."""
        super().resizeEvent(event)
        self._fit_sides()

    def _fit_sides(self) -> None:
        """Gives up the list of conversations while the settings leave no room for answers beside it."""
        wanted = ANSWER_LETTERS * self.fontMetrics().averageCharWidth() + self.list.width() + self.drawer.width()
        self.list.setVisible(self.drawer.isHidden() or self.width() >= wanted)

    def _save(self) -> None:
        """Write the current conversation, one write at a time; one in which nothing was asked is not kept."""
        run, talk = self.run, self.model.current
        if run is None or talk not in self.model.conversations:
            return
        self._unsaved[talk.id] = partial(conversations.save, run, copy.deepcopy(talk))
        self._write()

    def _erase(self, run: Run, talk: Conversation) -> None:
        """Delete the file of a conversation, after a write of it that is under way."""
        self._unsaved[talk.id] = partial(conversations.delete, run, talk)
        self._write()

    def _keep_piece(self) -> None:
        """Write what has come of an answer."""
        if self.model.answering:
            self._save()
        else:
            self._keep.stop()

    def _write(self) -> None:
        if self._saving or not self._unsaved:
            return
        self._saving = True
        change = self._unsaved.pop(next(iter(self._unsaved)))

        def over() -> None:
            self._saving = False
            self._write()

        def failed(error: TunesmithError) -> None:
            self._show_error(error)
            over()

        self.run_in_background(change, lambda _nothing: over(), failed)

    # Showing

    def _rebuild(self) -> None:
        """Show the turns of the conversation: those that are shown already stay."""
        turns = self.model.current.turns
        stay = 0
        for view, turn in zip(self._views, turns, strict=False):
            if view.turn is not turn:
                break
            stay += 1
        for view in self._views[stay:]:
            self._turns.removeWidget(view)
            view.hide()
            view.deleteLater()
        fresh = [TurnView(number, turns[number], self._area.widget()) for number in range(stay, len(turns))]
        self._views[stay:] = fresh
        for view in fresh:
            view.asked.connect(lambda action, side, number=view.number: self._act(number, action, side))
            self._turns.insertWidget(self._turns.count() - 1, view)
            view.show()
        self._empty.setVisible(not turns)
        self.drawer.show_conversation(self.model.current)
        self.compare.setChecked(self.model.current.compares)
        self._repaint()
        self._show_state()

    def _repaint(self) -> None:
        loading = self.context.chat.state is ModelState.LOADING
        for view, turn in zip(self._views, self.model.current.turns, strict=True):
            newest = view is self._views[-1]
            waiting = self.model.waiting if newest else []
            errors = self.model.errors if newest else {}
            busy = self.model.answering
            view.show_turn(turn, waiting, errors, loading=loading, busy=busy, newest=newest)

    def _show_state(self) -> None:
        model, service = self.model, self.context.chat
        if self.name.text() != self._name:
            self.name.setText(self._name)
        mine = service.run == self.run
        if mine and service.state is ModelState.LOADING:
            self.chip.set_state(self.tr("Loading the model…"), "neutral", icon_name="clock")
        elif mine and service.state is ModelState.READY:
            device = self.tr("GPU") if service.ready.get("device") == "cuda" else self.tr("CPU")
            step = tr.number(service.ready.get("step") or 0)
            self.chip.set_state(tr.fill(self.tr("Ready on the %1, step %2"), device, step), "ok")
        else:
            self.chip.set_state(self.tr("Not loaded"), "neutral")
            if model.answering and mine:
                model.fail()
        self.drawer.show_template(service.ready.get("has_template") if mine else None)
        self._controls.updateGeometry()
        self.weights.setEnabled(not model.answering)
        self.compare.setEnabled(not model.answering)
        self.composer.show_state(answering=model.answering, editing=model.edited is not None)
        self.list.show_conversations(model.conversations, model.current, busy=model.answering)
        self._repaint()

    def _note_place(self, place: int) -> None:
        self._is_at_end = place >= self._area.verticalScrollBar().maximum()

    def _keep_end_in_sight(self, _low: int, high: int) -> None:
        """Follow what is written, and what stands below it at last, unless the person reads further up."""
        if self._is_at_end:
            self._area.verticalScrollBar().setValue(high)


def _look(run: Run) -> _Found:
    system = conversations.system_prompt_of(run)
    return _Found(run, display_name(run), run.load_spec(), system, find_weights(run), conversations.load(run))
