"""The report of a run: one page that holds what happened, whatever the run is like."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.core.test_evaluations import FOUND
from tunesmith_core import cli, environments, evaluations, kernel_words, settings
from tunesmith_core.base_model import FileNote
from tunesmith_core.checkpoint_manifest import Manifest
from tunesmith_core.messages import Message
from tunesmith_core.preferences import METRICS
from tunesmith_core.protocol import Event, JournalWriter
from tunesmith_core.report import page, pdf
from tunesmith_core.report.curves import MAX_POINTS, curves
from tunesmith_core.report.facts import Facts, read
from tunesmith_core.runs import Run, RunStatus, create_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]
HOSTILE = "<script>alert(1)</script>\u202e"


class Links(HTMLParser):
    """What a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe") or any(name in ("src", "href") for name, _ in attrs):
            self.found.append(tag)


@pytest.fixture
def run(make_spec: Make) -> Run:
    """A finished run with held-out losses 3, 2, 1.5, two answers and an adapter."""
    run = create_run(make_spec("told"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello", version="0.1", python="3.11", torch="2.6.0", device_name="A card")
        journal.write(
            "setup", total_steps=20, num_train_rows=95, num_eval_rows=50, num_skipped_rows=2, dtype="bfloat16",
            num_trainable_parameters=1234, kernels=[
                Message(kernel_words.FUSED.template, num_fused=2, num_layers=2), Message("Attention: cudnn."),
                Message(kernel_words.RUNNING.template, names="rms_norm, rope"),
                Message(kernel_words.TWINS.template, names="glu", reason="It crashed here."),
            ],
        )  # fmt: skip
        journal.write("eval", step=0, loss=3.0)
        journal.write("sample", step=0, prompt="Who?", text="before it")
        for step in range(1, 21):
            journal.write("step", step=step, loss=3.0 / step)
        journal.write("eval", step=10, loss=2.0)
        journal.write("sample", step=10, prompt="Who?", text="on the way")
        journal.write("warning", code="nan-loss", message="Step 3: odd.")
        journal.write("warning", code="nan-loss", message="Step 3: odd.")
        journal.write("eval", step=20, loss=1.5)
        journal.write("sample", step=20, prompt="Who?", text=HOSTILE)
        for step, answer in ((0, "Nothing"), (10, "Four?"), (20, "Four!")):
            journal.write("answers", step=step, answers=[{"prompt": "2 + 2?", "expected": "Four.", "answer": answer}])
        gain = {"mean": 1.5, "low": 1.2, "high": 1.8, "rows": 5}
        journal.write("comparison", step=20, improvement=gain, dependence=None)
        journal.write("result", status="finished", step=20, artifacts={"adapter": "adapter"})
    run.adapter_path.mkdir()
    (run.adapter_path / "adapter_model.safetensors").write_bytes(b"weights")
    (run.adapter_path / "adapter_config.json").write_bytes(b"{}")
    return run


def report_of(run: Run, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["report", run.id]) == 0
    assert f"report: {run.path / 'report.html'}" in capsys.readouterr().out
    return (run.path / "report.html").read_text(encoding="utf-8")


def test_the_page_tells_what_happened(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = report_of(run, capsys)
    for words in (
        "Improved a lot: the held-out loss fell from 3.000 to 1.500.",
        "<td>10</td><td>2.000</td><td>7.39</td>",
        "<th>Held-out rows</th><td>50</td>",
        "<th>Training rows</th><td>95</td>",
        "<th>Skipped rows</th><td>2</td>",
        "<th>Steps</th><td>20 / 20</td>",
        "<th>Device</th><td>A card</td>",
        "<th>PyTorch</th><td>2.6.0</td>",
        "<th>Fast kernels</th><td>All layers ran on Tunesmith&#x27;s fast path. Operations on fast GPU kernels: 2. "
        "Operations without a GPU kernel: 1. It crashed here.</td>",
        "before it",
        hashlib.sha256(b"weights").hexdigest(),
        "<h2>Settings</h2>", "by epochs",
        "Over 5 held-out rows the loss fell by 1.50 (95% interval: 1.20 to 1.80).",
        "<h3>2 + 2?</h3><table><tr><td class=soft>Before training</td><td class=text>Nothing</td></tr>"
        "<tr><td class=soft>Step 20</td><td class=text>Four!</td></tr>"
        "<tr><td class=soft>Expected</td><td class=text>Four.</td></tr></table>",
    ):
        assert words in text
    assert text.count("Step 3: odd.") == 1
    assert "on the way" not in text, "before and after are told"
    told, names = text.split("<details>")
    assert "rms_norm" not in told, "the names of kernels are folded"
    assert "<p class=soft>Triton kernels: rms_norm, rope.</p>" in names


def test_what_is_not_fast_is_said_with_its_reason() -> None:
    reason = Message("The fused kernels are switched off.")
    sentences = [
        Message(kernel_words.FUSED.template, num_fused=1, num_layers=3),
        Message(kernel_words.NOT_FUSED.template, num_unfused=2, num_layers=3, note="Dropout."),
        Message(kernel_words.PLAIN.template, reason=reason),
        "of another version",
    ]
    assert list(kernel_words.summary(sentences)) == [
        "Layers on Tunesmith's fast path: 1 of 3.",
        "Layers with a part in plain PyTorch: 2. Dropout.",
        "The model was trained in plain PyTorch, without fast kernels. The fused kernels are switched off.",
    ]


def test_on_a_processor_no_path_is_called_fast() -> None:
    reason = Message("The CPU uses plain PyTorch.")
    sentences = [
        Message(kernel_words.FUSED.template, num_fused=3, num_layers=3),
        Message(kernel_words.TWINS.template, names="glu, rope", reason=reason),
    ]
    assert list(kernel_words.summary(sentences)) == [
        "None: all operations ran in plain PyTorch. The CPU uses plain PyTorch."
    ]


def test_epochs_are_those_that_were_trained(make_spec: Make, capsys: pytest.CaptureFixture[str]) -> None:
    spec = make_spec("steps")
    spec.schedule.max_steps = 15
    run = create_run(spec)
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("setup", total_steps=15, steps_per_epoch=3)
        journal.write("step", step=15, loss=1.0)
    text = report_of(run, capsys)
    assert "<th>Epochs</th><td>5</td>" in text
    assert text.count("<th>Epochs</th>") == 1, "the setting was not used"


def test_the_page_tells_which_rows_came_from_which_file(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"num_train_rows": 80, "num_eval_rows": 5, "num_epoch_rows": 1200}
    sources = [{"path": "/data/one.jsonl", **counts}, {"path": "/data/<b>.csv", **counts, "num_epoch_rows": 7}]
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("setup", total_steps=20, num_train_rows=95, sources=sources)
    text = report_of(run, capsys)
    assert "<th>one.jsonl</th><td>80 training rows, 5 held out, 1,200 examples in each epoch</td>" in text
    assert "<th>&lt;b&gt;.csv</th><td>80 training rows, 5 held out, 7 examples in each epoch</td>" in text
    for wrong in ([sources[0]], [sources[0], {"path": "x"}], [sources[0], {**sources[1], "path": 3}], 3, [3, 4]):
        with closing(JournalWriter(run.journal_path)) as journal:
            journal.write("setup", total_steps=20, sources=wrong)
        assert "examples in each epoch" not in report_of(run, capsys)


def test_foreign_text_is_shown_and_does_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = report_of(run, capsys)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\u202e" not in text
    links = Links()
    links.feed(text)
    assert links.found == []
    assert "http" not in re.sub(r"<table>.*?</table>", "", text)


def test_what_is_redacted_leaves_its_mark(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("sample", step=20, prompt="Mail?", text="Write to anna@example.org today.")
    text = report_of(run, capsys)
    assert "Write to &lt;e-mail&gt; today." in text, "else a browser takes the mark for a tag and shows nothing"


def test_a_home_folder_is_not_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    spec = json.loads(run.spec_path.read_text())
    spec["model"]["path"] = str(Path.home() / "models" / "m")
    run.spec_path.write_text(json.dumps(spec))
    assert str(Path.home() / "models") not in report_of(run, capsys)


def test_a_run_that_did_nothing_has_a_page(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("new"))
    target = tmp_path / "page.html"
    assert cli.main(["report", run.id, "--to", str(target), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["outcome"], answer["best_step"], answer["path"]) == ("unmeasured", None, str(target))
    text = target.read_text(encoding="utf-8")
    assert "Nobody knows whether the model improved" in text
    assert "<svg" not in text
    assert "None. Only held-out rows are asked" in text


def test_a_run_whose_settings_are_damaged_is_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.spec_path.write_text("{")
    assert cli.main(["report", run.id]) == 2
    assert str(run.spec_path) in capsys.readouterr().err
    assert not (run.path / "report.html").exists()


def test_the_page_is_in_the_persons_language(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "language_in_force", lambda: "zh_CN")
    monkeypatch.setattr(RunStatus, "lasted_s", lambda _status, _now: 1223.0)
    assert cli.main(["report", run.id]) == 0
    capsys.readouterr()
    text = (run.path / "report.html").read_text(encoding="utf-8")
    assert '<html lang="zh-CN">' in text
    assert "<h2>Settings</h2>" not in text
    assert "20 分 23 秒" in text
    assert "All layers" not in text


def test_the_page_names_what_it_was_made_of(
    run: Run, data_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "<th>model.safetensors</th>" not in report_of(run, capsys)
    note = FileNote(7, 0, "ab" * 32, "")
    noted = Manifest(1, {}, 0.0, None, {"model.safetensors": note}, {})
    monkeypatch.setattr(page, "newest_noted", lambda _folder: noted)
    text = report_of(run, capsys)
    assert f"<th>model.safetensors</th><td>SHA-256 {'ab' * 32}</td>" in text
    assert hashlib.sha256(data_file.read_bytes()).hexdigest() in text


def test_answers_are_called_right_or_wrong_where_that_was_told(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(JournalWriter(run.journal_path)) as journal:
        for step, right in ((0, False), (20, True)):
            told = {"prompt": "3 + 3?", "expected": "6", "answer": str(step), "right": right}
            journal.write("answers", step=step, answers=[told])
    text = report_of(run, capsys)
    assert "efore training: wrong" in text
    assert "tep 20: right" in text
    assert "tep 20</td>" in text, "nothing is told of the other question"


def test_answers_and_samples_that_were_cut_are_marked(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(JournalWriter(run.journal_path)) as journal:
        told = {"prompt": "3 + 3?", "expected": "6", "answer": "6 or", "right": True}
        journal.write("answers", step=20, answers=[told], cuts=[1200])
        journal.write("sample", step=20, prompt="Who?", text="I am", cut_at_tokens=7)
        journal.write("sample", step=20, prompt="Why?", text="Because.", cut_at_tokens="x")
    text = report_of(run, capsys)
    assert "tep 20: right, cut at 1,200 tokens</td>" in text
    assert "tep 20, cut at 7 tokens</td><td class=text>I am" in text
    assert "tep 20</td><td class=text>Because." in text


def test_what_to_do_next_is_printed_and_written(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", run.id]) == 0
    out = capsys.readouterr().out
    for words in (
        "Improved a lot: the held-out loss fell from 3.000 to 1.500.",
        "Over 5 held-out rows the loss fell by 1.50 (95% interval: 1.20 to 1.80).",
        "Ask it something that is not among the rows before you rely on it.",
    ):
        assert words in out
        assert words in run.report_path.read_text(encoding="utf-8")


def test_the_settings_tell_which_tokens_and_rows_are_learned(
    make_spec: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec("told")
    text = report_of(create_run(spec), capsys)
    for words in (
        f"<th>Context length</th><td>{spec.data.context_length:,}</td>",
        "<th>Loss on</th><td>Answers only</td>",
        "<th>Held-out share</th><td>5%</td>",
    ):
        assert words in text
    spec.evaluation.path = spec.data.sources[0].path
    assert "Held-out share" not in report_of(create_run(spec), capsys)


@pytest.fixture
def pairs_run(make_spec: Make) -> Run:
    """A finished DPO run whose pairs are told apart in 50, then in 94 of 100 pairs."""
    spec = make_spec("pairs")
    spec.objective.kind = "dpo"
    run = create_run(spec)
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("setup", total_steps=20, num_train_rows=95, num_eval_rows=50)
        for step, loss, *values in (
            (0, 0.693, 0.0, 0.0, 0.0, 0.0, -50.0, -50.0),
            (10, 0.4, 0.1, -0.9, 1.0, 0.8, -49.0, -59.0),
            (15, 0.35),
            (20, 0.3, 0.2, -1.3, 1.5, 0.94, -120.0, -163.0),
        ):
            journal.write("eval", step=step, loss=loss, **dict(zip(METRICS, values, strict=False)))
        journal.write("result", status="finished", step=20)
    return run


def test_a_run_of_pairs_tells_its_method_and_how_many_are_told_apart(
    pairs_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    text = report_of(pairs_run, capsys)
    for words in (
        "In 94% of the held-out pairs the model leans more toward the better answer than its reference does.",
        "Their log-probability fell from -50.0 to -120.0",
        "<th>Method</th><td>Direct preference optimization (DPO), Rafailov et al. 2023, arXiv:2305.18290</td>",
        "<th>Beta</th><td>0.1</td>",
        "<th>DPO loss</th><td>Sigmoid</td>",
        "<th>Better answer preferred</th><th>Reward margin</th>",
        "<td>0</td><td>0.693</td><td>–</td><td>–</td>",
        "<td>15</td><td>0.350</td><td>–</td><td>–</td>",
        "<td>20</td><td>0.300</td><td>94%</td><td>1.50</td>",
        "The loss is the mean over pairs.",
    ):
        assert words in text
    for words in ("nats per token", "Perplexity", "<th>Margin</th>"):
        assert words not in text
    evaluations.save(pairs_run, FOUND)
    assert "nats per token" in report_of(pairs_run, capsys), "that evaluation has it of the better answers"


def test_a_run_of_pairs_without_a_reference_tells_what_the_base_model_prefers(
    make_spec: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec("pairs")
    spec.objective.kind, spec.objective.beta = "simpo", 2.5
    run = create_run(spec)
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("eval", step=0, loss=1.2, **dict(zip(METRICS, (-3.0, -3.1, 0.1, 0.5, -1.5, -1.55), strict=True)))
    text = report_of(run, capsys)
    for words in (
        "<td>0</td><td>1.200</td><td>50%</td><td>0.10</td>",
        "<th>Beta</th><td>2.5</td>",
        "<th>Margin</th><td>0.5</td>",
        "arXiv:2405.14734",
    ):
        assert words in text
    assert "DPO loss" not in text


def test_what_a_resume_undid_of_pairs_is_forgotten(pairs_run: Run) -> None:
    assert sorted(read(pairs_run).pairs) == [0, 10, 20]
    with closing(JournalWriter(pairs_run.journal_path)) as journal:
        journal.write("hello", resumed_from_step=10)
        journal.write("eval", step=None, reward_margin=1.0)
        journal.write("eval", step=12, reward_margin="high")
    assert sorted(read(pairs_run).pairs) == [0, 10]


def test_answers_that_a_resume_undid_are_forgotten(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello", resumed_from_step=0)
        journal.write("answers", step=0, answers=[{"prompt": "Other?", "expected": "Yes", "answer": "No"}])
    assert cli.main(["show", run.id, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["answers"]
    told = {"prompt": "2 + 2?", "expected": "Four.", "before": "Nothing", "now": None, "step": 0}
    assert first == told | {"right_before": None, "right_now": None}
    assert (second["before"], second["now"]) == ("No", None)
    assert read(run).comparison == {}
    text = report_of(run, capsys)
    assert "Four!" not in text
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("answers", step=5, answers=[{"prompt": "Late?", "expected": "Yes", "answer": "Yes"}])
        journal.write("hello", resumed_from_step=4)
    assert [each.prompt for each in read(run).answers] == ["2 + 2?", "Other?"]


def test_show_and_the_end_say_the_verdict(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", run.id, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"]["outcome"] == "much"
    assert told["answers"][0]["now"] == "Four!"
    assert cli.main(["show", run.id]) == 0
    assert "Improved a lot: the held-out loss fell from 3.000 to 1.500." in capsys.readouterr().out


def test_what_a_resume_undid_is_forgotten() -> None:
    facts = Facts()
    for number, (kind, data) in enumerate(
        (
            ("hello", {}),
            ("eval", {"step": 0, "loss": 3.0}),
            ("step", {"step": 1, "loss": 2.0}),
            ("step", {"step": 2, "loss": None}),
            ("sample", {"step": 2, "prompt": "a", "text": "x"}),
            ("sample", {"step": None, "prompt": "b", "text": "x"}),
            ("eval", {"step": 2, "loss": 9.0}),
            ("hello", {"resumed_from_step": 1}),
            ("step", {"step": 2, "loss": 1.0}),
            ("warning", {"message": None}),
            ("answers", {"step": None, "answers": [{"prompt": "a"}]}),
            ("answers", {"step": 2}),
        )
    ):
        facts.fold(Event(number, 0.0, kind, data))
    assert facts.training == {1: 2.0, 2: 1.0}
    assert facts.held_out == {0: 3.0}
    assert facts.samples == {}
    assert facts.warnings == {}


def test_a_run_without_a_journal_says_nothing(make_spec: Make) -> None:
    assert read(create_run(make_spec("empty"))).training == {}


def test_a_curve_has_few_points_and_its_ends() -> None:
    picture = curves({step: 10.0 - step / 1000 for step in range(1, 5001)}, {0: 9.0, 5000: 4.0})
    [training, held_out] = re.findall(r'<polyline class="(?:training|heldout)" points="([^"]*)"', picture)
    assert MAX_POINTS / 2 < len(training.split()) <= MAX_POINTS
    assert held_out == "44.0,72.5 716.0,216.0"
    assert picture.count("<circle") == 2
    assert ">9.99<" in picture
    assert ">4<" in picture
    assert ">5000<" in picture


def test_a_level_curve_and_what_is_no_number() -> None:
    assert 'points="44.0,216.0 716.0,216.0"' in curves({}, {0: 1.0, 4: 1.0})
    assert curves({1: float("nan"), 2: 1.0}, {}) == ""
    assert "<svg" in curves({0: 1.0}, {0: 2.0}), "steps from 0 to 0 have no width"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.docx", "a report is an .html or a .pdf file"),
        ("missing/a.html", "missing does not exist"),
        ("folder.html", "is a folder. Name a file."),
    ],
)
def test_a_report_goes_into_a_page_or_a_pdf_in_a_folder_that_is_there(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    assert cli.main(["report", run.id, "--to", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err.replace("\n", "")
    assert not list(tmp_path.rglob("a.*"))


def test_a_report_is_printed_by_the_windows_libraries(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = iter([0, 0, 1])
    monkeypatch.setattr(environments, "window_python", lambda: "python")

    def call(command: list[str], env: dict[str, str]) -> int:
        assert command[0] == "python"
        assert command[-3:] == ["tunesmith_gui.report_pdf", str(run.report_path), str(run.path / "report.pdf")]
        assert "PATH" in env
        assert "Improved a lot" in run.report_path.read_text(encoding="utf-8")
        (run.path / "report.pdf").write_bytes(b"%PDF")
        return next(codes)

    monkeypatch.setattr(pdf.subprocess, "call", call)
    target = tmp_path / "told.PDF"
    assert cli.main(["report", run.id, "--to", str(target)]) == 0
    assert target.read_bytes() == b"%PDF"
    assert cli.main(["report", run.id, "--to", str(run.path / "report.pdf")]) == 0
    assert cli.main(["report", run.id, "--to", str(tmp_path / "other.pdf")]) == 1
    assert "could not be printed" in capsys.readouterr().err
    assert not (tmp_path / "other.pdf").exists()
