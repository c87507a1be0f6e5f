"""The operation `bench`: its rows of figures are counted right, and what goes wrong costs only its own row."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.bench import rivals
from tests.engine.fused import families
from tests.tiny_model import build_tiny_model
from tunesmith_core import files
from tunesmith_core.errors import EXIT_DONE, UserError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import serve
from tunesmith_core.operations.kinds.engine import BENCH, BenchSpec
from tunesmith_core.protocol import read_journal
from tunesmith_engine.bench import floor
from tunesmith_engine.bench.longest import search
from tunesmith_engine.bench.session import Session, speed
from tunesmith_engine.bench.workload import Workload
from tunesmith_engine.failures import translate
from tunesmith_engine.train.metrics import StepReport

NUM_TOKEN_IDS = 259


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model without a tokenizer."""
    folder = build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    return folder


Bench = Callable[..., list[rivals.Row]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Do the operation in this process, on the CPU unless told otherwise; return its rows."""

    def do(model: Path, *workloads: str, **more: Any) -> list[rivals.Row]:
        spec = BenchSpec(str(model), " ".join(workloads), **({"device": "cpu", "optimizer": "adamw"} | more))
        operation = Operation(tmp_path / "operation")
        operation.control_path.mkdir(parents=True)
        files.atomic_write_json(operation.path / "operation.json", {"version": 1, "kind": BENCH.name})
        files.atomic_write_json(operation.spec_path, BENCH.spec_values(spec))
        serve(operation, translate)
        result = read_journal(operation.journal_path)[-1].data
        return [*(result["answer"] or {"rows": []})["rows"], result]

    return do


# Rows


@pytest.mark.parametrize("objective", ["dpo", "orpo"])
def test_pairs_are_timed(bench: Bench, tiny_model: Path, objective: str) -> None:
    row, _ = bench(tiny_model, "pairs:2:24:warmup=1:steps=2", rank=4, objective=objective)
    assert (row["objective"], row["path"], row["tokens_per_step"]) == (objective, "fused", 96)
    assert "share_of_replay_none" not in row


@pytest.mark.parametrize("optimizer", ["adamw_8bit", "muon"])
def test_full_fine_tuning_is_timed(bench: Bench, tiny_model: Path, optimizer: str) -> None:
    first, second, _ = bench(tiny_model, *["whole:2:24:warmup=1:steps=2"] * 2, method="full", optimizer=optimizer)
    assert (first["method"], first["path"], first["tokens_per_step"]) == ("full", "fused", 48)
    assert (first["loss_first"], first["loss_last"]) == (second["loss_first"], second["loss_last"])
    assert first["loss_last"] != first["loss_first"]


def test_rows_are_the_same_at_every_call_and_not_each_other() -> None:
    workload = Workload("a", 2, 64, num_warmup_steps=1, num_steps=2)
    steps = workload.steps(NUM_TOKEN_IDS)
    assert steps == workload.steps(NUM_TOKEN_IDS)
    assert [len(row) for step in steps for row in step] == [64] * 6
    assert len({tuple(row) for step in steps for row in step}) == 6
    assert min(min(row) for step in steps for row in step) >= 3
    assert max(max(row) for step in steps for row in step) < NUM_TOKEN_IDS


def test_varied_rows_are_as_long_as_short_chats() -> None:
    workload = Workload("a", 8, 2048, varied=True, num_warmup_steps=0, num_steps=100)
    lengths = [len(row) for step in workload.steps(1000) for row in step]
    assert len(lengths) == 800
    assert statistics.median(lengths) == pytest.approx(180, rel=0.1)
    assert min(lengths) >= 16
    assert max(lengths) <= 2048


def test_packed_steps_are_full_and_leave_no_row_out() -> None:
    workload = Workload.parse("a:2:512:packed:warmup=4:steps=16")
    sizes = [[len(row) for row in step] for step in workload.steps(1000)]
    assert all(512 < sum(step) <= 1024 for step in sizes)
    lengths = workload.lengths()
    assert [size for step in sizes for size in step] == [next(lengths) for step in sizes for _ in step]


def test_texts_of_workloads() -> None:
    workload = Workload.parse("chat:8:2048:varied:no-checkpointing:vram-gib=6.5:policy=saver")
    wanted = Workload("chat", 8, 2048, varied=True, checkpointing=False, vram_gib=6.5, policy="saver")
    assert workload == wanted
    for text in ("chat", "chat:8", "chat:8:x", "chat:8:64:fast", "chat:8:64:vram-gib=much"):
        with pytest.raises(UserError, match="NAME:BATCH:SEQ"):
            Workload.parse(text)


# Figures


def test_speed_counts_all_tokens_and_the_median_step() -> None:
    """One slow step, as a busy machine makes them, moves the total and not the median."""
    timed = ((10, 1.0), (20, 9.0), (30, 2.0))
    steps = [StepReport(0, 0.0, 0.0, 0, num_tokens, 0.0, 0.0, step_s) for num_tokens, step_s in timed]
    assert speed(steps, 12.0) == {"tokens_per_s": 5.0, "tokens_per_step": 20, "step_ms": 2000.0, "num_steps": 3}
    assert speed(steps[1:], 11.0)["step_ms"] == 5500.0


@pytest.mark.long
def test_answers_are_timed(tiny_model: Path, bench: Bench, tmp_path: Path) -> None:
    one, more, result = bench(tiny_model, "one:1:24", "more:3:16", rank=4, decode=True)
    assert (result["status"], result["exit_code"]) == ("finished", EXIT_DONE)
    for row in (one, more):
        assert row["decoder"] == "fused"
        assert row["first_token_s"] > 0
        assert row["tokens_per_s"] > 0
    events = read_journal(tmp_path / "operation" / "events.jsonl")
    words = [event.data["text"] for event in events if event.type == "log" and event.data["level"] == "info"]
    assert "more, lora, 3 x 16 tokens" in words[1]
    assert "fused decoder, first token after" in words[1]


def test_answers_that_fail_are_an_error_of_their_row(
    tiny_model: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise torch.OutOfMemoryError("A test.")

    monkeypatch.setattr("tunesmith_engine.bench.decoding.open_decoder", fails)
    row, result = bench(tiny_model, "one:1:24", decode=True)
    assert row["error"]["code"] == "cuda-oom"
    assert result["exit_code"] != EXIT_DONE


def test_rows_of_two_workloads(tiny_model: Path, bench: Bench, tmp_path: Path) -> None:
    fixed, chat, result = bench(tiny_model, "fixed:2:64:steps=2", "chat:4:64:varied:steps=2", rank=4)
    assert (result["status"], result["exit_code"]) == ("finished", EXIT_DONE)
    assert fixed["tokens_per_step"] == 128
    sizes = [sum(map(len, step)) for step in Workload("chat", 4, 64, varied=True, num_steps=2).steps(NUM_TOKEN_IDS)]
    assert chat["tokens_per_step"] == round(sum(sizes[6:]) / 2)
    for row in (fixed, chat):
        assert row["num_steps"] == 2
        assert row["path"] == "fused", row["report"]
        assert row["tokens_per_s"] > 0
        assert row["floor_replay_all_ms"] > row["floor_replay_none_ms"] > 0
        assert row["share_of_replay_none"] == pytest.approx(row["floor_replay_none_ms"] / row["step_ms"], rel=0.05)
        assert row["warnings"] == []
    events = read_journal(tmp_path / "operation" / "events.jsonl")
    told = [event.data for event in events if event.type == "phase" and event.data["total"]]
    assert [(each["name"], each["done"], each["total"]) for each in told] == [("fixed", 0, 2), ("chat", 1, 2)]
    words = [event.data["text"] for event in events if event.type == "log" and event.data["level"] == "info"]
    assert "fixed, lora, 2 x 64 tokens" in words[0]
    assert "tokens/s" in words[0]
    assert "layers" in words[0]


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_first_loss_is_that_of_the_base_model(tiny_model: Path, bench: Bench, method: str) -> None:
    """A new adapter changes nothing, so the first loss is known; later ones fall when the same rows come again."""
    row, _ = bench(tiny_model, "a:2:64:steps=1", method=method)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    ids = torch.tensor(Workload("a", 2, 64).steps(NUM_TOKEN_IDS)[0])
    with torch.no_grad():
        expected = model(input_ids=ids, labels=ids).loss.item()
    assert row["loss_first"] == pytest.approx(expected, rel=1e-5 if method == "lora" else 0.05)


def test_a_workload_that_fails_spares_the_others(tiny_model: Path, bench: Bench) -> None:
    bad, good, result = bench(tiny_model, "bad:1:64:policy=unheard-of", "good:1:64:steps=1")
    assert (result["status"], result["code"]) == ("failed", bad["error"]["code"])
    assert "unheard-of" in bad["error"]["message"]
    assert good["tokens_per_s"] > 0


def test_a_missing_model_is_named(tmp_path: Path, bench: Bench) -> None:
    (result,) = bench(tmp_path / "nowhere", "a:1:64")
    assert (result["code"], result["exit_code"]) == ("model-files-missing-or-corrupt", 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_memory_on_a_gpu(tiny_model: Path, bench: Bench, method: str) -> None:
    workloads = ("free:2:256:steps=2", "held:2:256:vram-gib=0.5:steps=2")
    *rows, result = bench(tiny_model, *workloads, method=method, device="cuda", optimizer="adamw_8bit")
    assert result["status"] == "finished", rows
    for row in rows:
        assert 0 < row["peak_gib"] <= row["reserved_gib"]
        assert row["peak_over_plan"] <= 1.05
        assert row["path"] == "fused"
    assert rows[1]["reserved_gib"] <= 0.5
    assert rows[0]["loss_first"] == pytest.approx(rows[1]["loss_first"], rel=1e-3)


# The floor


def test_floor_knows_every_product_of_the_model(tiny_model: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    shapes = floor.Shapes.of(model)
    # Two layers: q, o; k, v; gate, up; down.
    assert shapes.products == Counter({(64, 64, 1): 4, (64, 32, 1): 4, (64, 128, 1): 4, (128, 64, 1): 2})
    assert shapes.head == (64, NUM_TOKEN_IDS)
    assert shapes.attentions == Counter({(4, 16, None): 2})


def test_floor_knows_experts_and_heads_of_every_width() -> None:
    experts = floor.Shapes.of(families.make("qwen3-moe", num_hidden_layers=1))
    text = families.make("qwen3-moe").config
    wide = (text.hidden_size, 2 * text.moe_intermediate_size, text.num_experts_per_tok)
    assert experts.products[wide] == 1
    assert experts.products[text.moe_intermediate_size, text.hidden_size, text.num_experts_per_tok] == 1
    kinds = {(head_dim, reach) for _, head_dim, reach in floor.Shapes.of(families.make("gemma4")).attentions}
    assert {head_dim for head_dim, _ in kinds} == {16, 32}
    assert {reach for head_dim, reach in kinds if head_dim == 32} == {None}


def test_a_window_counts_as_shorter_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()

    def attention(_: object, num_documents: int, length: int, *__: int) -> tuple[float, float]:
        asked.add((num_documents, length))
        return 1.0, 1.0

    monkeypatch.setattr(floor._Timer, "product", lambda *_: (1.0, 1.0))
    monkeypatch.setattr(floor._Timer, "attention", attention)
    model = families.make("gemma4")
    window = model.config.sliding_window
    floor.measure(model, torch.device("cpu"), torch.float32, num_tokens=1, num_documents=2, length=8 * window)
    assert asked == {(2, 8 * window), (8, 2 * window)}


def test_floor_adds_up(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one ms for each product forward, 10 backward, 100 and 1000 for attention, the sums are known."""

    def product(_: object, num_tokens: int, *__: int) -> tuple[float, float]:
        assert num_tokens == 24
        return 1.0, 10.0

    def attention(_: object, num_documents: int, length: int, *__: int) -> tuple[float, float]:
        assert (num_documents, length) == (2, 16)
        return 100.0, 1000.0

    monkeypatch.setattr(floor._Timer, "product", product)
    monkeypatch.setattr(floor._Timer, "attention", attention)
    model = AutoModelForCausalLM.from_pretrained(tiny_model).requires_grad_(False)
    found = floor.measure(model, torch.device("cpu"), torch.float32, num_tokens=24, num_documents=2, length=16)
    once = 14 * 11 + 11 + 2 * 1100
    assert found == floor.Floor(replay_all_ms=once + 14 + 200, replay_none_ms=once)


# The longest row


@pytest.mark.parametrize("limit", [600, 3000, 40_000])
@pytest.mark.parametrize("start", [512, 4096, 100_000])
def test_longest_row_is_found_in_few_tries(limit: int, start: int) -> None:
    tries: list[int] = []

    def fits(length: int) -> bool:
        tries.append(length)
        return length <= limit

    found = search(fits, start)
    assert found <= limit < min(length for length in tries if length > limit)
    assert min(length for length in tries if length > limit) - found <= max(256, 0.02 * limit)
    assert found in tries
    assert len(tries) <= 15
    assert len(set(tries)) == len(tries)


def test_search_for_the_longest_row_as_an_operation(
    tiny_model: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def try_out(_: Session, workload: Workload) -> rivals.Row:
        assert (workload.batch_size, workload.vram_gib, workload.num_warmup_steps, workload.num_steps) == (1, 8, 1, 1)
        return {} if workload.sequence_length <= 3000 else {"error": {"message": "no memory"}}

    monkeypatch.setattr(Session, "try_out", try_out)
    row, result = bench(tiny_model, "eight:4:1024:vram-gib=8", longest=True)
    assert result["status"] == "finished"
    assert row["longest_tokens"] == 2816
    assert row["tries"][0] == {"tokens": 1024}
    assert {"tokens": 3072, "error": {"message": "no memory"}} in row["tries"]


def test_no_row_fits() -> None:
    assert search(lambda _: False, 4096) == 0


# The table beside rivals


def rows_of(*given: tuple[str, str, float, float]) -> Sequence[rivals.Row]:
    return [
        {"workload": name, "program": program, "tokens_per_s": speed, "peak_gib": peak, "step_ms": 1.0}
        for name, program, speed, peak in given
    ]


def test_table_compares_with_the_same_workload() -> None:
    rows = [
        *rows_of(("a", "tunesmith", 260.0, 8.0), ("a", "unsloth", 100.0, 4.0), ("a", "unsloth", 200.0, 4.0)),
        *rows_of(("a", "unsloth", 150.0, 4.0), ("a/same", "tunesmith", 300.0, 3.0), ("b", "tunesmith", 1.0, 1.0)),
        {"workload": "b", "program": "unsloth", "error": {"message": "fails to compile"}},
    ]
    lines = rivals.table(rows, "unsloth").splitlines()
    found = {tuple(line.split()[:2]): line.split()[2:] for line in lines[1:]}
    assert len(lines) == 6
    # 260 and 300 by 150, the median of three rounds.
    assert found["a", "tunesmith"] == ["260", "8.00", "1.0", "1.73", "2.00"]
    assert found["a/same", "tunesmith"] == ["300", "3.00", "1.0", "2.00", "0.75"]
    assert found["a", "unsloth"][3:] == ["1.00", "1.00"]
    assert found["b", "tunesmith"] == ["1", "1.00", "1.0"]
    assert found["b", "unsloth"] == ["fails", "to", "compile"]


def test_what_shares_a_process() -> None:
    workloads = ["a:1:64", "b:1:64:no-checkpointing", "c:1:64"]
    assert rivals.processes("unsloth", workloads) == [["a:1:64", "c:1:64"], ["b:1:64:no-checkpointing"]]
    assert rivals.processes("tunesmith", [*workloads, "d:1:64:vram-gib=1"]) == [workloads, ["d:1:64:vram-gib=1"]]
    assert rivals.processes("tunesmith", []) == []


def test_ours_is_held_to_what_the_reference_reserved() -> None:
    rows = [
        {"program": "unsloth", "workload": "a", "reserved_gib": 7.5},
        {"program": "liger", "workload": "b", "reserved_gib": 9.0},
        {"program": "unsloth", "workload": "c", "error": {"message": "Out of memory."}},
    ]
    given = ["a:4:2048:varied", "b:4:2048", "c:4:2048"]
    assert rivals.held(given, rows, "unsloth") == ["a/same-memory:4:2048:varied:vram-gib=7.5"]
    assert rivals.held(given, rows, None) == []


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals.importlib.util, "find_spec", lambda name: None if name == "liger_kernel" else name)
    assert rivals.missing("liger") == ["liger_kernel"]
    assert rivals.missing("trl") == []
