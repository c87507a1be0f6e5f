"""How many examples a plan counts, by what a look at the rows found."""

from __future__ import annotations

from typing import Any

import pytest

from tunesmith_core.rows_look import RowsLook
from tunesmith_core.spec_sections import SourceSpec

WHOLE = {"rows_looked_at": [80], "rows_used": [56], "is_complete": True, "row_tokens": 9.5}


@pytest.mark.parametrize(
    ("answer", "most_rows", "num_rows", "examples", "is_exact"),
    [
        ({}, None, 80, 80, False),
        ({}, 20, 80, 20, False),
        ({}, None, None, None, False),
        (WHOLE, None, None, 56, True),
        (WHOLE, None, 86, 56, True),
        (WHOLE, 40, 86, 28, False),
        (WHOLE, 80, 86, 56, True),
        (WHOLE | {"is_complete": False}, None, 800, 560, False),
        (WHOLE | {"is_complete": False}, None, None, None, False),
        (WHOLE | {"rows_looked_at": [0], "rows_used": [0]}, None, 3, 0, True),
    ],
)
def test_rows_that_are_left_out_are_not_counted(
    answer: dict[str, Any], most_rows: int | None, num_rows: int | None, examples: int | None, is_exact: bool
) -> None:
    look, sources = RowsLook.of(answer), [SourceSpec(path="/a", most_rows=most_rows)]
    assert look.examples(sources, [num_rows]) == [examples]
    assert look.is_exact(sources) == is_exact
    assert look.row_tokens == answer.get("row_tokens")
