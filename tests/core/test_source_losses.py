"""Held-out losses of each data file: how they are told, and what a journal may say of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.core.test_evaluations import FOUND
from tests.core.test_report import report_of
from tunesmith_core import evaluations
from tunesmith_core.event_fields import sound
from tunesmith_core.messages import said
from tunesmith_core.protocol import Event, JournalWriter
from tunesmith_core.report.facts import Facts
from tunesmith_core.runs import create_run
from tunesmith_core.source_losses import in_brief, of_event, perplexity
from tunesmith_core.spec import RunSpec
from tunesmith_core.terminal import _line

FILES: list[dict[str, Any]] = [
    {"path": "/data/town.md", "loss": 0.0, "num_tokens": 20},
    {"path": "/data/lake.md", "loss": 0.6931471805599453, "num_tokens": 3},
]


def test_a_perplexity_is_that_of_the_loss() -> None:
    assert [perplexity(loss) for loss in (0.0, 0.6931471805599453, 25.0, None)] == ["1.00", "2.00", "> 10^8", "–"]


def test_files_are_told_by_name_and_by_path_where_names_are_the_same() -> None:
    assert said(in_brief(of_event({"source_losses": FILES}))) == "perplexity: town.md 1.00, lake.md 2.00"
    twins = [FILES[0], {**FILES[1], "path": "/other/town.md", "loss": None}]
    assert [each.name for each in of_event({"source_losses": twins})] == ["/data/town.md", "/other/town.md"]
    assert said(in_brief(of_event({"source_losses": twins}))).endswith("/other/town.md –")
    assert in_brief(of_event({"loss": 1.0})) is None


@pytest.mark.parametrize("wrong", [3, [3], [{"path": 1, "loss": 1.0, "num_tokens": 1}], [{**FILES[0], "loss": "low"}]])
def test_a_field_of_another_type_is_left_out(wrong: object) -> None:
    assert sound({"source_losses": wrong}) == {}
    assert sound({"source_losses": FILES}) == {"source_losses": FILES}


def test_a_line_tells_the_files_beside_the_whole() -> None:
    line = said(_line(Event(1, 0.0, "eval", {"step": 4, "loss": 0.5, "source_losses": FILES})))
    assert line.endswith("  perplexity: town.md 1.00, lake.md 2.00")


def test_the_report_tells_each_file_at_each_evaluation(
    make_spec: Callable[..., RunSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("files"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("eval", step=0, loss=2.0, source_losses=[{**each, "loss": 2.0} for each in FILES])
        journal.write("eval", step=10, loss=0.5, source_losses=FILES)
    page = report_of(run, capsys)
    assert "<th>town.md</th><th>lake.md</th>" in page
    assert "<td>0</td><td>7.39</td><td>7.39</td>" in page
    assert "<td>10</td><td>1.00</td><td>2.00</td>" in page


def test_what_a_resume_undid_is_forgotten() -> None:
    facts = Facts()
    for step in (0, 10):
        facts.fold(Event(step, 0.0, "eval", {"step": step, "loss": 1.0, "source_losses": FILES}))
    facts.fold(Event(11, 0.0, "hello", {"resumed_from_step": 5}))
    assert list(facts.source_losses) == [0]


def test_an_evaluation_tells_each_file() -> None:
    sources = [{"path": each["path"], "rows": 12, "before": 2.0, "after": each["loss"]} for each in FILES]
    told = [said(note) for note in evaluations.notes(FOUND | {"sources": sources})]
    assert "Held-out perplexity of lake.md: 7.39 before, 2.00 after training. Rows: 12." in told
    assert not any("perplexity" in said(note) for note in evaluations.notes(FOUND))
