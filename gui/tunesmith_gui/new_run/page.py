"""The Train page: three decisions to a run (model, data, preset), the plan beside them, everything else in one list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QGridLayout, QScrollArea, QVBoxLayout, QWidget

from tunesmith_core.actions import ACTIONS
from tunesmith_core.chat_templates import OWN
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.models.run_spec import AtSetting, ChosenData, Proposal, to_look_at
from tunesmith_gui.new_run.actions import NewRunActions
from tunesmith_gui.new_run.data_picker import DataPicker
from tunesmith_gui.new_run.data_preview import DataPreviewDialog
from tunesmith_gui.new_run.facts import DATA, ENCODING, SHEET, NewRunFacts
from tunesmith_gui.new_run.form import BY_EXAMPLE, NewRunForm
from tunesmith_gui.new_run.goal_card import GoalCard
from tunesmith_gui.new_run.looks import Survey
from tunesmith_gui.new_run.model_picker import ModelPicker
from tunesmith_gui.new_run.plan_card import PlanCard
from tunesmith_gui.new_run.preset_bar import PresetBar
from tunesmith_gui.new_run.rewards_card import RewardsCard
from tunesmith_gui.new_run.setting_paths import LISTED
from tunesmith_gui.new_run.settings_list import SettingsList
from tunesmith_gui.new_run.sources_card import SourcesCard
from tunesmith_gui.new_run.start_bar import StartBar
from tunesmith_gui.new_run.start_picker import StartPicker
from tunesmith_gui.new_run.surroundings import Missing
from tunesmith_gui.new_run.tasks_card import TasksCard
from tunesmith_gui.new_run.teacher_card import TeacherCard
from tunesmith_gui.new_run.way_bar import WayBar, way_word
from tunesmith_gui.new_run.words_card import WordsCard
from tunesmith_gui.page import Page, page_column
from tunesmith_gui.services.dismissed import Dismissed
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.banner import Banner, BannerAction, Tone
from tunesmith_gui.widgets.column_mapping import ColumnMappingDialog
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.fitting_scroll import FittingScroll
from tunesmith_gui.widgets.in_sight import InSight
from tunesmith_gui.widgets.page_header import PageHeader

if TYPE_CHECKING:
    from tunesmith_gui.environment.setup_activity import Activity

OF_THE_HUB = frozenset({"hub-gated-401", "hub-not-found", "hub-owner-changed", "model-not-downloaded"})
"""Errors that the Models page helps with."""

SIDE_WIDTH_PX = 320
FORM_MIN_WIDTH_PX = 420
FORM_MAX_WIDTH_PX = 780
NOTICES_SHARE = 0.4
"""Of the page's height that notices may take; longer ones scroll."""


class NewRunPage(Page):
    """Builds the widgets, binds them to the form and its facts; what buttons do is in `NewRunActions`."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.form = NewRunForm(self)
        self.facts = NewRunFacts(self.form)
        self.actions_ = NewRunActions(self, self.form, self.facts)
        self._side_by_side: bool | None = None
        self._num_skipped = 0
        self._banner_slots: dict[str, Banner] = {}
        self._blamed: RunSpec | None = None
        self._surveyed: tuple[bool, bool] | None = None
        self._environment = ""
        self._way = self.form.way
        self._dismissed = Dismissed()
        self._build()
        self._bind()
        self._arrange()
        self._refresh("")
        self.actions_.restore()

    @property
    def title(self) -> str:
        """The page's title."""
        return self.tr("New run")

    def on_shown(self, argument: object = None) -> None:
        """Takes dropped files, data or a spec to start from, and looks at the computer again."""
        if isinstance(argument, RunSpec):
            self.actions_.take_spec(argument)
            self._form_scroll.verticalScrollBar().setValue(0)  # how to teach, model and data are others now
        elif isinstance(argument, Proposal):
            self.actions_.take_spec(argument.spec, argument.settings)
            for path in argument.settings[:1]:
                self.reveal_setting(path)
        elif isinstance(argument, AtSetting):
            if argument.spec is not None:
                self.actions_.take_spec(argument.spec)
            self.reveal_setting(argument.path)
        elif isinstance(argument, ChosenData):
            self.actions_.take_chosen(argument)
        elif isinstance(argument, list):
            self.actions_.take_files([Path(each) for each in argument])
        self.facts.refresh()
        self.start_picker.refresh()
        self.rewards_card.look_for_models()

    def on_hidden(self) -> None:
        """Saves the draft without waiting for the timer."""
        self.actions_.save_draft()

    def memory(self) -> object:
        """The form as it is, whether the list of all settings is open, and the run that waits for its model."""
        return self.actions_.draft(), self.settings_list.is_open, self.actions_.hand_over()

    def remember(self, memory: object) -> None:
        """Fills the form again."""
        assert isinstance(memory, tuple)
        draft, is_open, waiting = memory
        self.actions_.take_draft(draft)
        self.settings_list.set_open(is_open)
        self.actions_.take_over(waiting)
        self.facts.refresh()

    def perform(self, action: str) -> bool:
        """Starts, searches and explains by keyboard."""
        if action == "start_run":
            self.actions_.start()
        elif action == "find":
            self.settings_list.set_open(True)
            self.settings_list.filter.setFocus(Qt.FocusReason.ShortcutFocusReason)
        elif action == "help":
            return self.settings_list.explain_focused()
        else:
            return False
        return True

    # Building

    def _build(self) -> None:
        form_host = QWidget(self)
        self.form_column = page_column(form_host, max_width_px=FORM_MAX_WIDTH_PX)
        (self._form_scroll,) = form_host.findChildren(QScrollArea)
        words = self.tr("Choose how to teach, a model, data and a preset. The rest is already set.")
        self.header = PageHeader(self.tr("New run"), words, parent=self)
        self.way_bar = WayBar(parent=self)
        self.model_picker = ModelPicker(parent=self)
        self.start_picker = StartPicker(self.form, parent=self)
        self.model_picker.hold(self.start_picker)
        self.data_picker = DataPicker(parent=self)
        self.sources_card = SourcesCard(self.form, parent=self)
        self.rewards_card = RewardsCard(self.form, parent=self)
        self.tasks_card = TasksCard(self.form, parent=self)
        self.teacher_card = TeacherCard(self.form, parent=self)
        self.words_card = WordsCard(self.form, parent=self)
        self.preset_bar = PresetBar(parent=self)
        self.settings_list = SettingsList(self.form, parent=self)
        self.sources_card.weighed.connect(self._show_sources)
        self.sources_card.weighed.connect(self._show_start)
        self.goal_card = GoalCard(self.form, parent=self)
        self.form_column.addWidget(self.header)
        self.form_column.addWidget(self.way_bar)
        self._tiles = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._tiles.setSpacing(SPACE * 2)
        self._tiles.addWidget(self.model_picker, 1)
        self._tiles.addWidget(self.data_picker, 1)
        self.form_column.addLayout(self._tiles)
        of_method = (self.teacher_card, self.sources_card, self.tasks_card, self.rewards_card, self.words_card)
        for card in (*of_method, self.preset_bar, self.settings_list, self.goal_card):
            self.form_column.addWidget(card)
        self.form_column.addStretch(1)
        self.plan_card = PlanCard()
        self.start_bar = StartBar()
        self._plan_scroll = FittingScroll(self)
        self._side = QWidget(self)
        self._side_column = QVBoxLayout(self._side)
        self._side_column.setContentsMargins(0, SPACE * 3, SPACE * 3, SPACE * 3)
        self._side_column.setSpacing(SPACE * 2)
        self._side_column.addWidget(self._plan_scroll)
        self._side_column.addStretch(1)
        self._foot = QWidget(self)
        self._foot_column = QVBoxLayout(self._foot)
        self._foot_column.setContentsMargins(SPACE * 3, SPACE, SPACE * 3, SPACE * 2)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(0)
        self._grid.setHorizontalSpacing(SPACE)  # between the form's scroll bar and the plan
        self._grid.addWidget(self._with_notices(form_host), 0, 0)
        self._grid.addWidget(self._side, 0, 1)
        self._grid.addWidget(self._foot, 1, 0)
        self._grid.setColumnStretch(0, 1)
        self._grid.setRowStretch(0, 1)

    def _with_notices(self, form_host: QWidget) -> QWidget:
        """The form with room for notices below it: one that comes moves nothing that is about to be clicked."""
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(form_host, 1)
        self._notices = QWidget(holder)
        inner = QVBoxLayout(self._notices)
        inner.setContentsMargins(SPACE * 3, SPACE, SPACE * 3, SPACE)
        self.banners = FittingScroll(self._notices)
        inner.addWidget(self.banners)
        self._notices.hide()
        column.addWidget(self._notices)
        return holder

    def _bind(self) -> None:
        form, actions = self.form, self.actions_
        form.changed.connect(self._refresh)
        self.facts.survey_changed.connect(self._show_survey)
        self.facts.model_changed.connect(self._show_model)
        self.facts.data_changed.connect(self._show_data)
        self.facts.model_slow.connect(self.model_picker.show_loading)
        self.facts.data_slow.connect(self.data_picker.show_loading)
        self.facts.plan_changed.connect(self._show_plan)
        self.way_bar.chosen.connect(actions.choose_way)
        self.data_picker.way_asked.connect(actions.choose_way)
        self.model_picker.path_chosen.connect(actions.choose_model)
        self.model_picker.library_asked.connect(self._open_library)
        self.teacher_card.library_asked.connect(lambda: self.navigate.emit("models", "more"))
        self.model_picker.again_asked.connect(self.facts.refresh)
        self.data_picker.path_chosen.connect(actions.choose_data)
        self.data_picker.path_added.connect(actions.add_data)
        self.data_picker.sample_asked.connect(actions.use_sample)
        self.data_picker.skip_asked.connect(lambda: form.set_value("data.skip_bad_rows", True))
        self.data_picker.problems_asked.connect(self._show_problems)
        self.data_picker.chat_asked.connect(actions.train_as_chat)
        self.data_picker.mapping_asked.connect(self._open_mapping)
        self.data_picker.columns_chosen.connect(self.actions_.map_columns)
        self.tasks_card.made.connect(self.actions_.use_problems)
        self.tasks_card.installed.connect(self.rewards_card.look)
        self.data_picker.preview_asked.connect(self._open_preview)
        self.data_picker.sheets.chosen.connect(actions.choose_sheet)
        self.preset_bar.chosen.connect(form.choose_preset)
        self.plan_card.fix_chosen.connect(actions.apply_changes)
        self.plan_card.check_asked.connect(actions.check_plan)
        self.plan_card.check_cancelled.connect(actions.cancel_check)
        self.start_bar.setting_asked.connect(self.reveal_setting)
        self.start_bar.start_asked.connect(actions.start)
        self.start_bar.cancel_asked.connect(actions.download.cancel)
        actions.download.changed.connect(self._show_download)
        self.start_bar.cancel_start_asked.connect(actions.doubts.cancel)
        actions.doubts.changed.connect(lambda: self.start_bar.show_starting(actions.doubts.live))
        self.start_bar.copy_command_asked.connect(actions.copy_command)
        self.start_bar.copy_json_asked.connect(actions.copy_json)
        self.start_bar.save_asked.connect(actions.save_spec)
        actions.error_found.connect(self._show_error)
        actions.checking_changed.connect(self.plan_card.show_checking)
        actions.recent_changed.connect(self._show_choices)
        QTimer.singleShot(0, self, self._follow_setup)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Moves the plan into the form when there is no room beside it; Start stays beside what it says."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        scale = max(1.0, theme().font_scale)
        wide = self.width() >= (FORM_MIN_WIDTH_PX + SIDE_WIDTH_PX) * scale
        side_px = round(SIDE_WIDTH_PX * scale) + SPACE * 3
        self._side.setFixedWidth(side_px)
        self.banners.setMaximumHeight(round(self.height() * NOTICES_SHARE))
        self._arrange_tiles(self.width() - (side_px if wide else 0) - SPACE * 7)
        if wide is self._side_by_side:
            return
        self._side_by_side = wide
        self._side.setVisible(wide)
        self._foot.setVisible(not wide)
        if wide:
            self._plan_scroll.hold(self.plan_card)
            # Behind the stretch: a click must hit Start also when the plan grows under the pointer.
            self._side_column.addWidget(self.start_bar)
        else:
            self.form_column.insertWidget(self.form_column.count() - 1, self.plan_card)
            self._foot_column.addWidget(self.start_bar)
        self.plan_card.show()
        self.start_bar.set_beside_plan(wide)
        self._order_tabs()

    def _arrange_tiles(self, room_px: int) -> None:
        """Model and data stand beside each other where both have the width that they need."""
        needed_px = max(tile.minimumSizeHint().width() for tile in (self.model_picker, self.data_picker))
        directions = QBoxLayout.Direction
        beside = room_px >= needed_px * 2 + self._tiles.spacing()
        self._tiles.setDirection(directions.LeftToRight if beside else directions.TopToBottom)
        actions = (self.data_picker.add, self.data_picker.sample)
        self.model_picker.heading.setMinimumHeight(max(action.sizeHint().height() for action in actions))

    def _order_tabs(self) -> None:
        # Reading order: form, plan, start; the plan card moves between two places.
        QWidget.setTabOrder(self.goal_card.name, self.plan_card.check)
        QWidget.setTabOrder(self.plan_card.check, self.start_bar.start)
        QWidget.setTabOrder(self.start_bar.start, self.start_bar.cancel_start)
        QWidget.setTabOrder(self.start_bar.cancel_start, self.start_bar.copy_as)

    # Showing

    def _refresh(self, path: str) -> None:
        if path in ("", "model.path"):
            self.model_picker.combo.show_path(self.form.value("model.path"))
        if path in ("", DATA, SHEET):
            self._num_skipped = 0
        if path in ("", DATA):
            if self.facts.data is None or self.facts.data.path != self.form.value(DATA):
                self.data_picker.sheets.show_data(None)
            self.data_picker.combo.show_path(self.form.value(DATA))
        self._show_way()
        self._show_preset()
        self.goal_card.refresh()
        self.goal_card.show_num_rows(self.facts.num_rows)
        self._show_sources()
        self.rewards_card.refresh()
        self.tasks_card.refresh()
        self.teacher_card.refresh()
        self.words_card.refresh()
        if self._blamed not in (None, self._nameless()):
            # It was about a run that this one is not any more.
            self._put_banner("error", None)
        self._show_start()

    def _nameless(self) -> RunSpec:
        """The form's spec without the run's name, which no error is about."""
        spec = self.form.spec
        spec.name = ""
        return spec

    def _show_way(self) -> None:
        if self.form.way != self._way:
            self._way = self.form.way
            self.way_bar.show_way(self._way)
            self._show_data()  # which may suit it or not

    def _show_sources(self) -> None:
        data = self.facts.data
        errors = [None, *(other.error for other in data.others)] if data else []
        self.sources_card.show_files(self.facts.rows_of_files, errors, may_split=self.facts.may_split)

    def _show_start(self) -> None:
        missing = self.form.missing()
        if missing is Missing.STARTING:
            self._put_banner("error", None)
        self.start_bar.show_missing(missing, self.form.told_problems())

    def _show_download(self) -> None:
        download = self.actions_.download
        self.start_bar.show_download(download.words, download.share)

    def _show_survey(self) -> None:
        survey = self.facts.survey
        assert survey is not None
        found = (survey.environment_problem is not None, survey.has_gpu)
        if found != self._surveyed:
            self._surveyed = found
            if survey.has_gpu:
                self._dismissed.forget("gpu")
            self._put_banner("computer", self._computer_banner(survey))
        self._show_choices()
        self._show_preset()
        self._show_start()

    def _show_preset(self) -> None:
        num_changed = len(self.form.changed_paths())
        self.preset_bar.show_spec(self.form.preset, num_changed, self.form.spec, self.facts.device)

    def _computer_banner(self, survey: Survey) -> Banner | None:
        if survey.environment_problem is not None:
            actions = (
                (self.tr("Set up"), lambda: self.navigate.emit("setup", None)),
                (self.tr("Check again"), self.facts.refresh),
            )
            title, words = (
                self.tr("Training is not set up yet"),
                self.tr("You can look around, but training needs this step."),
            )
            return Banner("warn", title, words, actions=actions, parent=self)
        if survey.has_gpu:
            return None
        words = self.tr("Training will use the processor, which is slow. Models under 0.5 B parameters suit it best.")
        return self._news("gpu", "none", "neutral", self.tr("No NVIDIA GPU found"), words)

    def _news(
        self, name: str, state: str, tone: Tone, title: str, words: str, actions: tuple[BannerAction, ...] = ()
    ) -> Banner | None:
        """A banner that stays away once it was dismissed, until the state is another."""
        if (name, state) in self._dismissed:
            return None
        banner = Banner(tone, title, words, actions=actions, dismissable=True, parent=self)
        banner.dismissed.connect(lambda: self._dismissed.add(name, state))
        return banner

    def _follow_setup(self) -> None:
        """After the first picture, which needs none of it."""
        self.context.setup.changed.connect(self._show_environment)
        self.context.setup.ended.connect(self._on_setup_ended)

    def _on_setup_ended(self, activity: Activity) -> None:
        if activity.command.changes:
            self.facts.refresh()

    def _show_environment(self) -> None:
        """Says what needs repair, as the last checks found it."""
        from tunesmith_gui.environment.model import Verdict

        model = self.context.setup.model
        verdict, failed = model.verdict, model.failed
        state = ",".join([verdict, *(check.id for check in failed)])
        if state == self._environment:
            return
        self._environment = state
        runs_may_fail = self.tr("Runs may fail. Everything else works.")
        names = "\n".join(core_text(check.title) for check in failed)
        news = {
            Verdict.WINDOW_BROKEN: (
                self.tr("The window's own libraries need repair"),
                self.tr("Training works. The window may not start the next time."),
            ),
            Verdict.BROKEN: (self.tr("The training environment needs repair"), runs_may_fail),
            Verdict.COMPUTER: (self.tr("These checks of your computer failed, so runs may fail"), names),
            Verdict.OUTDATED: (
                self.tr("The training environment belongs to another version of Tunesmith"),
                runs_may_fail,
            ),
        }
        banner = None
        if verdict in news:
            open_page = (self.tr("Open"), lambda: self.navigate.emit("environment", None))
            banner = self._news("environment", state, "warn", *news[verdict], actions=(open_page,))
        elif verdict in (Verdict.HEALTHY, Verdict.WARNINGS):
            self._dismissed.forget("environment")
        self._put_banner("environment", banner)

    def _show_choices(self) -> None:
        survey = self.facts.survey
        models, earlier = (survey.models, survey.earlier) if survey else ((), ())
        self.model_picker.set_choices(models, list(dict.fromkeys([*self.actions_.recent_models, *earlier])))
        self.data_picker.set_choices(self.actions_.recent_data)
        self.teacher_card.set_models(models)

    def _show_model(self) -> None:
        self.model_picker.show_model(self.facts.model)
        self.model_picker.show_fit(self.facts.plan)
        self.start_picker.know_model(self.facts.model)
        self._show_data()  # the model's chat template decides how a prompt and its response are trained

    def _show_data(self) -> None:
        card = self.facts.model.card if self.facts.model else None
        source = self.form.spec.data.sources[0]
        has_template = self.form.spec.model.chat_template != OWN or (card is not None and card.has_chat_template)
        self.settings_list.refresh(ENCODING)
        self.data_picker.sheets.show_data(self.facts.data)
        self.data_picker.show_data(
            self.facts.data,
            source,
            self._num_skipped,
            has_chat_template=has_template,
            could_prefer=self.form.could_prefer,
            lacks_pairs=self.form.lacks_pairs,
            lacks_labels=self.form.lacks_labels,
            lacks_prompts=self.form.lacks_prompts,
            way=self.form.way,
        )
        self.goal_card.show_columns(self.facts.columns)
        self.goal_card.show_num_rows(self.facts.num_rows)
        self._show_sources()
        self._show_start()

    def _show_plan(self) -> None:
        lacking = self.form.lacking_words
        facts = None if lacking else self.facts.plan
        self.model_picker.show_fit(facts)
        if facts is not None:
            self.plan_card.show_plan(facts, has_data=bool(self.form.value(DATA).strip()))
        elif lacking or self.form.problems():
            self.plan_card.show_nothing(lacking or self.tr("The plan appears once every setting is valid."))
        elif self.facts.data is not None and self.facts.data.skipping_helps:
            words = self.tr("The plan appears once rows that can't be used are skipped or repaired.")
            self.plan_card.show_nothing(words)
        elif self.form.surroundings.data_broken:
            self.plan_card.show_nothing(self.tr("The plan appears once the data can be read."))
        elif self.facts.model is not None and self.facts.model.is_hub_id:
            self.plan_card.show_nothing(self.tr("The plan appears once the model is downloaded."))
        elif self.facts.model is not None and self.facts.model.error is None:
            self.plan_card.show_nothing(self.tr("There is no plan for this model or device."))
        else:
            self.plan_card.show_nothing(self.tr("Choose a model and data to see how much memory the run needs."))
        self.start_bar.plan.setText(self.plan_card.summary)
        self._show_sources()
        self._show_start()

    def _show_error(self, error: TunesmithError) -> None:
        actions = [(self.tr("Copy diagnostics"), lambda: self.actions_.show_diagnostics(error))]
        if error.code in OF_THE_HUB:
            actions.insert(0, (self.tr("Open in Models"), self._open_library))
        if error.code == "dataset-column-missing":
            actions.insert(0, (core_text(ACTIONS["map-columns"].label), self._open_mapping))
            if self.form.way != BY_EXAMPLE:
                actions.insert(0, (way_word(BY_EXAMPLE), lambda: self.actions_.choose_way(BY_EXAMPLE)))
        self._put_banner("error", error_banner(error, actions=tuple(actions), parent=self))
        self._blamed = self._nameless()
        self._show_start()

    def _open_library(self) -> None:
        self.navigate.emit("models", self.form.value("model.path"))

    def _put_banner(self, slot: str, banner: Banner | None) -> None:
        if slot == "error":
            self._blamed = None
        old = self._banner_slots.pop(slot, None)
        if old is not None:
            old.hide()
            old.deleteLater()
        if banner is not None:
            self._banner_slots[slot] = banner
            banner.dismissed.connect(lambda: self._put_banner(slot, None))
            self.banners.hold(banner)
            self.banners.verticalScrollBar().setValue(0)
        self._notices.setVisible(bool(self._banner_slots))

    def reveal_setting(self, path: str) -> None:
        """Opens the list of settings at one of them."""
        cards = (self.sources_card, self.rewards_card, self.teacher_card)
        if (box := next((found for card in cards if (found := card.reveal(path))), None)) is not None:
            InSight(self._form_scroll, box)
            return
        if path not in LISTED:
            picker = self.model_picker if path == "model.path" else self.data_picker
            picker.combo.setFocus(Qt.FocusReason.OtherFocusReason)
            InSight(self._form_scroll, picker.combo)
            return
        self.settings_list.reveal(path)
        InSight(self._form_scroll, self.settings_list.rows[path])

    # Looking closer

    def _open_mapping(self) -> None:
        data = self.facts.data
        if data is None or data.sniffed is None:
            return
        spec = self.form.spec.data.sources[0]
        dialog = ColumnMappingDialog(data.head, data.sniffed.format, spec.format, spec.columns, self)
        dialog.mapped.connect(self.actions_.map_columns)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _show_problems(self) -> None:
        self.navigate.emit("data", to_look_at(self.form.spec, "problems"))

    def _open_preview(self) -> None:
        sniffed = self.facts.data.sniffed if self.facts.data else None
        dialog = DataPreviewDialog(self.form.spec, sniffed.kind if sniffed else "", self)
        dialog.measured.connect(self._take_preview)
        dialog.show()

    def _take_preview(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        self._num_skipped = answer["num_skipped"]
        self.facts.know_preview(answer)
        self._show_data()
