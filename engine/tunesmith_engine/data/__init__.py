"""Rows of a person's file as batches of tokens: read, render, tokenise, order, collate."""

from tunesmith_engine.data.collate import collate
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.order import epoch_order, split_rows
from tunesmith_engine.data.prepare import DataStats, PreparedData, prepare

__all__ = [
    "IGNORED_LABEL",
    "DataStats",
    "Example",
    "PreparedData",
    "collate",
    "epoch_order",
    "prepare",
    "split_rows",
]
