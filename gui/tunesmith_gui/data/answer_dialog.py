"""Asks which model answers the prompts of data and where the answers are saved, and shows how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from tunesmith_core.model_cards import ModelCard
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.answers import ANSWERS, AnswersSpec
from tunesmith_core.operations.kinds.questions import Begun
from tunesmith_core.spec import RunSpec
from tunesmith_gui.data.question_dialog import QuestionDialog
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import fill, number
from tunesmith_gui.widgets.safe_label import SafeLabel

_MOST_TOKENS, _USUAL_TOKENS = 32_768, 512


class AnswerDialog(QuestionDialog):
    """Open it with `open()`; closing it stops the model, and what is written stays. See QuestionDialog."""

    addition = "-answers"

    def _introduction(self) -> tuple[str, str]:
        return self.tr("Let a bigger model answer"), self.tr(
            "A model on this computer answers every prompt of the data, and a smaller one can learn from that. Nothing "
            "is sent anywhere. A model can be wrong, so you review each row afterwards."
        )

    def _model_help(self) -> str:
        return self.tr("Larger models answer better. One without a chat template can't do it.")

    def _build_choices(self, models: Sequence[ModelCard], model: str) -> QWidget:
        choices = super()._build_choices(models, model)
        self.keeps = QCheckBox(self.tr("Also keep how likely the model finds other words"), self)
        help_text = self.tr("A smaller model of the same family learns more from that. The file becomes larger.")
        column = choices.layout()
        assert isinstance(column, QVBoxLayout)
        column.insertWidget(2, self.keeps)
        column.insertWidget(3, SafeLabel(help_text, role="caption", tone="muted", wrap=True, parent=self))
        return choices

    def _number_field(self) -> tuple[str, str]:
        self.number.setRange(1, _MOST_TOKENS)
        self.number.setValue(_USUAL_TOKENS)
        help_text = self.tr("In tokens, about four letters each. Answers that would be longer are left out.")
        return self.tr("Longest answer"), help_text

    def _begin_word(self) -> str:
        return self.tr("Write answers")

    def _so_far_words(self, so_far: Begun) -> str:
        return fill(self.tr("%1 of %2 prompts so far"), number(so_far.passages), number(so_far.total))

    def _make_task(self, run: RunSpec, target: AbsolutePath) -> OperationTask:
        keeps = self.keeps.isChecked()
        spec = AnswersSpec(run, target, self.number.value(), overwrite=self._replaces, keeps_logprobs=keeps)
        return OperationTask(ANSWERS, spec, parent=self)

    def _progress_words(self, data: Mapping[str, Any]) -> list[str]:  # Any: JSON values
        prompts = fill(self.tr("%1 of %2 prompts"), number(data["done_bytes"]), number(data["total_bytes"]))
        return [prompts, fill(self.tr("%1 answers per minute"), number(60 * data["answers_per_s"], 1))]

    def _end_words(self, answer: Mapping[str, Any]) -> str:  # Any: JSON values
        words = fill(self.tr("%Ln answer(s) written. Prompts: %1.", "", answer["rows"]), number(answer["prompts"]))
        left_out = answer["silent"] + answer["unread"] + answer["empty"]
        if left_out:
            words += " " + self.tr("%Ln left out.", "", left_out)
        return words
