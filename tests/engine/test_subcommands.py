"""Short operations of the engine: preview, plan check, libraries, GGUF import."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers import AutoModelForCausalLM, AutoTokenizer

from tunesmith_core import files
from tunesmith_core.environments import engine_environment, module_command
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.operations.folder import Operation, OperationStatus
from tunesmith_core.operations.host import serve
from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.kinds.engine import (
    IMPORT,
    LIBRARIES,
    PLAN_CHECK,
    PREVIEW,
    ImportSpec,
    NoSpec,
    PreviewSpec,
)
from tunesmith_core.protocol import read_journal
from tunesmith_core.spec import RunSpec
from tunesmith_engine import probe as probe_module
from tunesmith_engine.failures import translate

Call = Callable[..., tuple[int, Any]]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Do an operation in this process and return its exit code and how its journal ends."""

    def run(kind: Kind, spec: object) -> tuple[int, Any]:
        operation = Operation(tmp_path / "operation")
        shutil.rmtree(operation.path, ignore_errors=True)
        operation.path.mkdir()
        files.atomic_write_json(operation.path / "operation.json", {"kind": kind.name})
        files.atomic_write_json(operation.spec_path, kind.spec_values(spec))
        code = serve(operation, translate)
        status = OperationStatus()
        for event in read_journal(operation.journal_path):
            status.fold(event)
        return code, status.error or status.answer

    return run


@pytest.fixture
def spec(tiny_spec: Callable[..., RunSpec]) -> RunSpec:
    """A spec of the tiny model."""
    return tiny_spec()


def test_preview_shows_what_is_trained(call: Call, spec: RunSpec) -> None:
    code, result = call(PREVIEW, PreviewSpec(spec, 3))
    assert code == 0
    assert len(result["rows"]) == 3
    trained = [segment["text"] for segment in result["rows"][1]["segments"] if segment["trained"]]
    assert "".join(trained).startswith("It is 2")


def test_preview_lists_a_hundred_bad_rows_and_counts_all(call: Call, spec: RunSpec, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text('{"text": "good"}\n' + '{"text": 1}\n' * 130)
    spec.data.sources[0].path = str(data)
    code, result = call(PREVIEW, PreviewSpec(spec, 3))
    assert code == 0
    assert (len(result["rows"]), len(result["problems"]), result["num_skipped"]) == (1, 100, 130)
    assert [problem["line"] for problem in result["problems"]] == list(range(2, 102))


def test_plan_check_trains_the_longest_rows(call: Call, spec: RunSpec) -> None:
    code, result = call(PLAN_CHECK, spec)
    assert code == 0
    assert result["device"] == "cpu"
    assert result["peak_bytes"] > 50 << 20
    assert result["micro_batch_size"] == 2
    assert result["longest_tokens"] > 50


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_plan_check_with_checkpointing_and_fewer_bits(call: Call, spec: RunSpec, kind: str) -> None:
    spec.hardware.activation_checkpointing = True
    spec.quantization.kind = kind
    code, _ = call(PLAN_CHECK, spec)
    assert code == 0


def test_errors_are_written_with_their_code(call: Call, spec: RunSpec, tmp_path: Path) -> None:
    spec.model.path = str(tmp_path / "nowhere")
    code, result = call(PLAN_CHECK, spec)
    assert code == 2
    assert result.code == "model-files-missing-or-corrupt"
    assert "nowhere" in result.message


def test_our_own_mistake_shows_its_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "probe", lambda: 1 // 0)
    code, result = call(LIBRARIES, NoSpec())
    assert (code, result.code) == (1, "bug")
    assert "ZeroDivisionError" in result.context


def test_probe_names_versions_and_devices(call: Call) -> None:
    code, result = call(LIBRARIES, NoSpec())
    assert code == 0
    assert result["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert result["packages"]["triton-windows"] is None
    assert len(result["gpus"]) == torch.cuda.device_count()
    assert result["host_total_bytes"] > 0


def _write_gguf(path: Path) -> None:
    """Write a Llama of one layer with a tokenizer of 32 tokens."""
    random = np.random.default_rng(0)
    hidden, inner, vocabulary = 16, 32, 32
    writer = GGUFWriter(path, "llama")
    writer.add_license("apache-2.0")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    words = ["ab", *(chr(ord("a") + i) for i in range(vocabulary - 4))]
    writer.add_token_list([*words, "<|im_start|>", "<|im_end|>", "<pad>"])
    writer.add_token_types([1] * (vocabulary - 3) + [3] * 3)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(vocabulary - 3)
    writer.add_eos_token_id(vocabulary - 2)
    writer.add_pad_token_id(vocabulary - 1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    shapes = {
        "token_embd": (vocabulary, hidden),
        "output": (vocabulary, hidden),
        "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (hidden, hidden),
        "blk.0.attn_v": (hidden, hidden),
        "blk.0.attn_output": (hidden, hidden),
        "blk.0.ffn_gate": (inner, hidden),
        "blk.0.ffn_up": (inner, hidden),
        "blk.0.ffn_down": (hidden, inner),
        "output_norm": (hidden,),
        "blk.0.attn_norm": (hidden,),
        "blk.0.ffn_norm": (hidden,),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_becomes_a_model_folder(call: Call, tmp_path: Path) -> None:
    source, target = tmp_path / "tiny.gguf", tmp_path / "models" / "tiny"
    _write_gguf(source)
    code, result = call(IMPORT, ImportSpec(AbsolutePath(str(source)), AbsolutePath(str(target))))
    assert code == 0, result
    assert result == {"path": str(target), "bytes": files.folder_bytes(target)}
    model = AutoModelForCausalLM.from_pretrained(target)
    assert model.dtype == torch.bfloat16
    assert model(torch.tensor([[1, 2]])).logits.shape == (1, 2, 32)
    assert AutoTokenizer.from_pretrained(target).chat_template
    assert read_model_card(target).licence == "apache-2.0"
    assert "quantization_config" not in json.loads((target / "config.json").read_text())
    assert [path.name for path in target.parent.iterdir()] == ["tiny"]
    code, result = call(IMPORT, ImportSpec(AbsolutePath(str(source)), AbsolutePath(str(target))))
    assert code != 0


@pytest.mark.parametrize("content", [None, b"", b"no gguf at all", b"GGUF and then nonsense"])
def test_what_is_no_gguf_is_refused(call: Call, tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "bad.gguf"
    if content is not None:
        source.write_bytes(content)
    code, result = call(IMPORT, ImportSpec(str(source), str(tmp_path / "models" / "bad")))
    assert (code, result.code) == (2, "model-files-missing-or-corrupt")
    assert not list(tmp_path.glob("models/*"))


def test_help_needs_no_training_library() -> None:
    script = "import sys; sys.modules['torch'] = None; import runpy; sys.argv[0] = sys.argv[1]; del sys.argv[0]; "
    start = module_command(sys.executable, "tunesmith_engine")[4]
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            script + "runpy.run_path(sys.argv[0], run_name='__main__')",
            start,
            "tunesmith_engine",
            "--help",
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"operation" in done.stderr


def test_training_libraries_start_no_process_of_their_own() -> None:
    """PyTorch's compiler would start workers of half a gigabyte when bitsandbytes is imported."""
    code = "import bitsandbytes, psutil; print(len(psutil.Process().children(recursive=True)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=engine_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "0"
