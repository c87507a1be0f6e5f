"""Rows of a person's file as batches of tokens: read, render, tokenise, order; `collate` makes tensors of them."""

from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.order import epoch_order, split_rows
from tunesmith_engine.data.prepare import DataStats, Prepared, PreparedData, prepare

__all__ = [
    "IGNORED_LABEL",
    "DataStats",
    "Example",
    "Prepared",
    "PreparedData",
    "epoch_order",
    "prepare",
    "split_rows",
]
