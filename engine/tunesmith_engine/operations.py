"""Short operations of the engine, declared in `tunesmith_core.operations.kinds`; each imports what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.chat import AskSpec, ChatSpec, RenderSpec
from tunesmith_core.operations.kinds.engine import (
    TOKENIZER_LOADED,
    HeadSpec,
    ImportSpec,
    NoSpec,
    PrepareSpec,
    PreviewSpec,
    SelftestSpec,
)
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

Answer = dict[str, Any]  # Any: JSON values


def preview(host: Host, spec: PreviewSpec) -> Answer:
    """Return how rows become trained tokens."""
    from tunesmith_engine.data.preview import preview
    from tunesmith_engine.model.folder import model_folder

    folder = model_folder(spec.run.model)
    with host.portions as portions:
        return preview(spec.run, _limited_tokenizer(folder, portions), spec.num_rows, portions)


def workbook_head(host: Host, spec: HeadSpec) -> Answer:
    """Return the first rows of a workbook, and how many it has."""
    from tunesmith_engine.data.read import Source

    with host.portions as portions:
        source = Source(SourceSpec(path=spec.path), skip_bad_rows=True, portions=portions)
        rows = list(source.rows())
    return {"rows": [row for _, row in rows[: spec.num_rows]], "num_rows": len(rows)}


def prepare(host: Host, spec: PrepareSpec) -> Answer:
    """Write the rows of a run as tokens into the folder of the operation; return what else is known of them."""
    from tunesmith_engine.data.asked import candidates
    from tunesmith_engine.data.prompts import sample_prompt_ids
    from tunesmith_engine.data.rows_file import RowsWriter, read_questions
    from tunesmith_engine.methods import method_of

    method = method_of(spec.run.objective.kind)
    with host.portions as portions:
        tokenizer = _limited_tokenizer(Path(spec.folder), portions)
        host.phase(TOKENIZER_LOADED)
        with RowsWriter(host.folder) as rows:
            prepared = method.prepare(spec.run, tokenizer, rows, portions)
        portions.about(Path(spec.folder))
        places = candidates(len(prepared.eval))
        questions = read_questions(host.folder, [prepared.eval[place] for place in places])
        return {
            **prepared.to_dict(),
            "prompts": sample_prompt_ids(spec.run, tokenizer, portions),
            "questions": {place: questions[prepared.eval[place]] for place in places},
        }


def prompt(host: Host, spec: PrepareSpec) -> list[int]:
    """Return the tokens of a prompt."""
    from tunesmith_engine.data.prompts import prompt_ids

    with host.portions as portions:
        tokenizer = _limited_tokenizer(Path(spec.folder), portions)
        portions.begin("prompt")
        return prompt_ids(tokenizer, spec.prompt, spec.run.data.system_prompt, portions)


def render(host: Host, spec: RenderSpec) -> None:
    """Render conversations as tokens until a stop interrupts."""
    from tunesmith_engine.chat.prompting import serve_prompts

    with host.portions as portions:
        serve_prompts(host, _limited_tokenizer(Path(spec.folder), portions), portions)


def chat(host: Host, spec: ChatSpec) -> Answer:
    """Keep the model of a run loaded and answer; return why it ended."""
    from tunesmith_engine.chat.serve import chat

    return chat(host, spec)


def ask(host: Host, spec: AskSpec) -> Answer:
    """Answer one question; return the answers."""
    from tunesmith_engine.chat.serve import ask

    return ask(host, spec)


def _limited_tokenizer(folder: Path, portions: Portions) -> Any:  # Any: a transformers tokenizer
    """Return the tokenizer of a model folder; from then on this process has the limits of a row."""
    # What is imported here counts for no limit.
    from transformers import AutoTokenizer  # noqa: F401

    from tunesmith_engine.model.folder import load_tokenizer

    portions.limit_memory(portions.limits.loading_memory_bytes)
    portions.about(folder)
    portions.begin("tokenizer-loading")
    tokenizer = load_tokenizer(folder)
    portions.limit_memory(portions.limits.memory_bytes)
    portions.end()
    return tokenizer


def check(_host: Host, spec: RunSpec) -> Answer:
    """Train one real step on the longest batch; return what it took."""
    from tunesmith_engine.preparation import Preparation

    with Preparation(spec) as preparation:
        # PyTorch is loaded while the data is prepared.
        from tunesmith_engine.plan_check import plan_check

        return plan_check(spec, preparation)


def import_gguf(_host: Host, spec: ImportSpec) -> Answer:
    """Convert a GGUF file into a model folder; return its path and size."""
    from tunesmith_engine.gguf_import import import_gguf

    return import_gguf(Path(spec.source), Path(spec.target))


def export(host: Host, spec: ExportSpec) -> Answer:
    """Export what a run has trained; return where it is."""
    from tunesmith_engine.export.export_run import export_run

    return export_run(host, spec)


def evaluate(host: Host, spec: EvaluateSpec) -> Answer:
    """Compare what a run has trained with its base model; return every figure."""
    from tunesmith_engine.evaluation.evaluate import evaluate

    return evaluate(host, spec)


def libraries(_host: Host, _spec: NoSpec) -> Answer:
    """Return what the libraries see of this machine."""
    from tunesmith_engine.probe import probe

    return probe()


def selftest(host: Host, spec: SelftestSpec) -> Answer:
    """Prove that this environment trains on this machine; return every step."""
    from tunesmith_engine.selftest import selftest

    return selftest(spec.device, lambda step: host.event("check", **step))
