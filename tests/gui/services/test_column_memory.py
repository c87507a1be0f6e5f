"""Answers about columns are kept by the set of columns, and survive what can't be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunesmith_gui.services.column_memory import MAX_SETS, ColumnMemory, Said

PAIR: Said = ("prompt-completion", {"prompt": "a", "completion": "b"})
TEXT: Said = ("text", {"text": "a"})


def test_columns_count_in_any_order_and_the_newest_answer_holds() -> None:
    memory = ColumnMemory()
    memory.remember(["a", "b"], TEXT)
    memory.remember(["b", "a"], PAIR)
    assert memory.recall(["a", "b"]) == PAIR
    assert memory.recall(["a"]) is None


def test_the_oldest_are_forgotten() -> None:
    memory = ColumnMemory()
    for number in range(MAX_SETS + 2):
        memory.remember([str(number)], TEXT)
    assert [memory.recall([str(number)]) for number in (0, 1, 2)] == [None, None, TEXT]


def test_what_was_kept_comes_back_and_what_was_said_meanwhile_wins() -> None:
    old, new = ColumnMemory(), ColumnMemory()
    old.remember(["a", "b"], TEXT)
    old.remember(["c"], PAIR)
    new.remember(["a", "b"], PAIR)
    new.take(json.loads(json.dumps(old.to_values())))
    assert (new.recall(["a", "b"]), new.recall(["c"])) == (PAIR, PAIR)


@pytest.mark.parametrize(
    "values", [None, 7, [7], [["a"]], [[["a"], "nonsense", {}]], [[["a"], "text", {"text": 7}]], [[[7], "text", {}]]]
)
def test_what_can_not_be_read_is_left_out(values: Any) -> None:
    memory = ColumnMemory()
    memory.take(values)
    assert memory.to_values() == []
