"""Heads that sort texts into classes or predict a number of each: cross-entropy, or the squared error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.operations.limits import Portions
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.data import Prepared
    from tunesmith_engine.data.rows_file import RowsWriter
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.loss_paths import LossPath


class Classifier(Method):
    """Learns the label of a text."""

    writes = False

    def prepare(
        self, spec: RunSpec, tokenizer: Any, rows: RowsWriter, portions: Portions
    ) -> Prepared:  # Any: a transformers tokenizer
        """Write the rows with their labels; see Method."""
        from tunesmith_engine.data.labeled import prepare_labeled

        return prepare_labeled(spec, tokenizer, rows, portions)

    def metrics(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the names of what is told of a step beside its loss."""
        return () if spec.objective.regression else ("accuracy",)

    def own_path(self, parts: Parts, micro_batch_size: int) -> LossPath:
        """Return the way in which gradients come about."""
        from tunesmith_engine.train.class_path import ClassPath

        return ClassPath(parts, micro_batch_size)


METHOD = Classifier()
