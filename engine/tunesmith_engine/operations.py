"""Short operations of the engine, declared in `tunesmith_core.operations.kinds`; each imports what it needs."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.exports import chosen_weights
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.answers import AnswersSpec, AskedSpec
from tunesmith_core.operations.kinds.chat import AskSpec, ChatSpec, RenderSpec
from tunesmith_core.operations.kinds.data import (
    CheckDataSpec,
    ConvertDataSpec,
    MixDataSpec,
    SaveDataSpec,
    SplitDataSpec,
)
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
from tunesmith_core.operations.kinds.hub import HubSpec, PushSpec, SearchSpec
from tunesmith_core.operations.kinds.questions import PassagesSpec, QuestionsSpec
from tunesmith_core.operations.kinds.rate import RateSpec
from tunesmith_core.operations.kinds.rows import IndexSpec, Placed, SaveRowsSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec

Answer = dict[str, Any]  # Any: JSON values

PACE_TELLS = 10
"""Rows per second are those since so many looks, each a second or more after the other: what an earlier start has done
goes faster."""


def preview(host: Host, spec: PreviewSpec) -> Answer:
    """Return how rows become trained tokens."""
    from tunesmith_engine.data.preview import preview
    from tunesmith_engine.model.folder import model_folder

    folder = model_folder(spec.run.model)
    with host.portions as portions:
        tokenizer = limited_tokenizer(folder, portions, spec.run.model.chat_template, spec.run.model.new_tokens)
        return preview(spec.run, tokenizer, spec.num_rows, portions, tokens=spec.tokens)


def doubts(host: Host, spec: RunSpec) -> Answer:
    """Return what a person should agree to before a run begins."""
    from tunesmith_engine.data.doubts import doubts
    from tunesmith_engine.model.folder import model_folder

    folder = model_folder(spec.model)
    with host.portions as portions:
        tokenizer = limited_tokenizer(folder, portions, spec.model.chat_template, spec.model.new_tokens)
        return doubts(spec, tokenizer, portions)


def words(host: Host, spec: RunSpec) -> Answer:
    """Return words of the data that could become tokens of their own."""
    from tunesmith_engine.data.word_suggestions import suggested_words
    from tunesmith_engine.model.folder import model_folder

    folder = model_folder(spec.model)
    with host.portions as portions:
        return suggested_words(spec, limited_tokenizer(folder, portions, spec.model.chat_template), portions)


def workbook_head(host: Host, spec: HeadSpec) -> Answer:
    """Return the first rows of a file that libraries read; see `data.head`."""
    from tunesmith_engine.data.head import head_of

    with host.portions as portions:
        return head_of(spec, portions)


def check_data(host: Host, spec: CheckDataSpec) -> Answer:
    """Return what is wrong with the data of a run, and where."""
    from tunesmith_engine.desk.check import check_data

    return check_data(host, spec)


def save_data(host: Host, spec: SaveDataSpec) -> Answer:
    """Write a repaired copy of the data of a run; return where it is and what was done."""
    from tunesmith_engine.desk.save import save_data

    return save_data(host, spec)


def save_table(host: Host, spec: SaveRowsSpec) -> Answer:
    """Save the rows of the Data page as a table; return how many there are."""
    from tunesmith_engine.desk.table import save_table

    return save_table(host, spec)


def split_data(host: Host, spec: SplitDataSpec) -> Answer:
    """Write the data of a run into two files; return how many rows each has."""
    from tunesmith_engine.desk.split import split_data

    return split_data(host, spec)


def mix_data(host: Host, spec: MixDataSpec) -> Answer:
    """Write rows of several sources into one file; return how many of each."""
    from tunesmith_engine.desk.mix import mix_data

    return mix_data(host, spec)


def convert_data(host: Host, spec: ConvertDataSpec) -> Answer:
    """Write the data of a run into a file of another kind; return how many rows it has."""
    from tunesmith_engine.desk.convert import convert_data

    return convert_data(host, spec)


def write_questions(host: Host, spec: QuestionsSpec) -> Answer:
    """Let a local model write questions about documents; return where they are and how many."""
    from tunesmith_engine.questions.write import write_questions

    return write_questions(host, spec)


def write_answers(host: Host, spec: AnswersSpec) -> Answer:
    """Let a local model answer the prompts of data; return where the answers are and how many."""
    from tunesmith_engine.answering.write import write_answers

    return write_answers(host, spec)


def read_prompts(host: Host, spec: AskedSpec) -> Answer:
    """Write the prompts of data into the folder of the operation; return how many there are."""
    from tunesmith_engine.answering.prompts import read_prompts

    return dict(read_prompts(host, spec))


def cut_passages(host: Host, spec: PassagesSpec) -> Answer:
    """Write the passages of documents into the folder of the operation; return how many there are."""
    from tunesmith_engine.questions.passages import cut_passages

    with host.portions as portions:
        model = spec.run.model
        tokenizer = limited_tokenizer(Path(spec.folder), portions, model.chat_template, model.new_tokens)
        return dict(cut_passages(host, spec, tokenizer))


def copy_rows(host: Host, spec: IndexSpec) -> Answer:
    """Copy the rows of a file that libraries read, for the window; return how many there are."""
    from tunesmith_core.datafmt import file_kind
    from tunesmith_core.operations.kinds.rows import copied
    from tunesmith_engine.data.read import Source

    def opened(bad: Callable[[str, int, TunesmithError], None]) -> Iterator[Placed]:
        source = Source(spec.source, skip_bad_rows=True)
        source.on_problem = lambda number, error: bad(source.shown_path, number, error)
        return ((source.shown_path, number, row) for number, row in source.rows())

    return copied(host, spec, file_kind(spec.path), opened)


def prepare(host: Host, spec: PrepareSpec) -> Answer:
    """Write the rows of a run as tokens into the folder of the operation; return what else is known of them."""
    from tunesmith_engine.data import token_cache
    from tunesmith_engine.data.asked import candidates
    from tunesmith_engine.data.begun import Begun
    from tunesmith_engine.data.prompts import sample_prompt_ids
    from tunesmith_engine.data.rows_file import RowsWriter, read_questions
    from tunesmith_engine.methods import method_of

    method = method_of(spec.run.objective.kind)
    with host.portions as portions:
        model = spec.run.model
        tokenizer = limited_tokenizer(Path(spec.folder), portions, model.chat_template, model.new_tokens)
        host.phase(TOKENIZER_LOADED)
        key = token_cache.key_of(spec.run, Path(spec.folder), tokenizer.chat_template)
        prepared = token_cache.fetch(key, host.folder)
        if prepared is None:
            with Begun(token_cache.begun_folder(key)) as begun:
                with RowsWriter(host.folder, _row_counter(host, spec.run), begun) as rows:
                    prepared = method.prepare(spec.run, tokenizer, rows, portions).to_dict()
                token_cache.keep(key, host.folder, prepared)
                begun.remove()
        portions.about(Path(spec.folder))
        for split in filter(None, (prepared, prepared.get("earlier"))):
            held_out = split["eval"]
            places = candidates(len(held_out))
            questions = read_questions(host.folder, [held_out[place] for place in places])
            split["questions"] = {place: questions[held_out[place]] for place in places}
        prompts = sample_prompt_ids(spec.run, tokenizer, prepared["system_prompt"], portions)
        return {**prepared, "prompts": prompts, "asks_all": method.from_rewards}


def _row_counter(host: Host, run: RunSpec) -> Callable[[int], None]:
    """Return what tells how many rows are tokens and how fast, and of about how many where that can be told."""
    from tunesmith_core.datafmt import sniff

    @cache
    def total() -> int:
        with contextlib.suppress(UserError, OSError):
            counts = [
                source.num_used(sniff(Path(source.path)).num_rows_estimate or 0) for source in run.all_sources()
            ]
            return sum(counts) if all(counts) else 0
        return 0

    told = deque([(time.monotonic(), 0)], maxlen=PACE_TELLS)

    def tell(num_rows: int) -> None:
        (since_s, before), now_s = told[0], time.monotonic()
        told.append((now_s, num_rows))
        rows_per_s = (num_rows - before) / max(now_s - since_s, 1e-6)
        left = max(total() - num_rows, 0)
        remaining_s = left / rows_per_s if left else None
        host.phase(
            TOKENIZER_LOADED,
            num_rows,
            total() if left else 0,
            "rows",
            rows_per_s=rows_per_s,
            remaining_s=remaining_s,
        )

    return tell


def prompt(host: Host, spec: PrepareSpec) -> list[int]:
    """Return the tokens of a prompt."""
    from tunesmith_engine.data.prompts import prompt_ids

    with host.portions as portions:
        model = spec.run.model
        tokenizer = limited_tokenizer(Path(spec.folder), portions, model.chat_template, model.new_tokens)
        portions.begin("prompt")
        return prompt_ids(tokenizer, spec.prompt, spec.run.data.system_prompt, portions)


def render(host: Host, spec: RenderSpec) -> None:
    """Render conversations as tokens until a stop interrupts."""
    from tunesmith_engine.chat.prompting import serve_prompts

    with host.portions as portions:
        serve_prompts(host, limited_tokenizer(Path(spec.folder), portions, spec.template, spec.words), portions)


def chat(host: Host, spec: ChatSpec) -> Answer:
    """Keep the model of a run loaded and answer; return why it ended."""
    from tunesmith_engine.chat.serve import chat

    return chat(host, spec)


def ask(host: Host, spec: AskSpec) -> Answer:
    """Answer one question; return the answers."""
    from tunesmith_engine.chat.serve import ask

    return ask(host, spec)


def rate(_host: Host, spec: RateSpec) -> Answer:
    """Return what the model of a run says of a text."""
    from tunesmith_engine.evaluation.rate import rate

    return rate(spec)


def read_text(host: Host, spec: RateSpec) -> Answer:
    """Return the tokens of a text that is to be rated."""
    from tunesmith_engine.evaluation.rate import read_text
    from tunesmith_engine.model.folder import model_folder

    run_spec = spec.answering()
    folder = model_folder(run_spec.model)
    with host.portions as portions:
        tokenizer = limited_tokenizer(folder, portions, run_spec.model.chat_template, run_spec.model.new_tokens)
        return read_text(run_spec, spec, tokenizer, portions)


def limited_tokenizer(
    folder: Path, portions: Portions, template: str, words: Sequence[str] = ()
) -> Any:  # Any: a transformers tokenizer
    """Return the tokenizer of a model folder; from then on this process has the limits of a row."""
    # What is imported here counts for no limit.
    from transformers import AutoTokenizer  # noqa: F401

    from tunesmith_engine.model.folder import load_tokenizer

    portions.limit_memory(portions.limits.loading_memory_bytes)
    portions.about(folder)
    portions.begin("tokenizer-loading")
    tokenizer = load_tokenizer(folder, template, words)
    portions.limit_memory(portions.limits.memory_bytes)
    portions.end()
    return tokenizer


def check(host: Host, spec: RunSpec) -> Answer:
    """Train one real step on the longest batch; return what it took."""
    from tunesmith_engine.preparation import Preparation

    with Preparation(spec, lambda fields: host.phase("data", **fields)) as preparation:
        # PyTorch is loaded while the data is prepared.
        from tunesmith_engine.plan_check import plan_check

        return plan_check(spec, preparation)


def check_model(_host: Host, spec: RunSpec) -> None:
    """Refuse the base model of a run whose files hold other weights than it has, as far as their headers tell."""
    from tunesmith_engine.model.folder import model_folder

    folder = model_folder(spec.model)
    from tunesmith_engine.model.heads import head_of
    from tunesmith_engine.model.load import check_weights

    check_weights(folder, head_of(spec))


def import_gguf(_host: Host, spec: ImportSpec) -> Answer:
    """Convert a GGUF file into a model folder; return its path and size."""
    from tunesmith_engine.gguf_import import import_gguf

    return import_gguf(Path(spec.source), Path(spec.target))


def search_hub(_host: Host, spec: SearchSpec) -> list[Answer]:
    """Return the facts of the models that the hub finds."""
    from tunesmith_engine.hub.client import chosen_hub

    found = chosen_hub().search(
        spec.text,
        family=spec.family,
        licence=spec.licence,
        smallest=spec.smallest,
        largest=spec.largest,
        limit=spec.limit,
    )
    return [model.to_dict() for model in found]


def hub_facts(_host: Host, spec: HubSpec) -> Answer:
    """Return what the hub says about a repository."""
    from tunesmith_engine.hub.client import chosen_hub

    return chosen_hub().facts(spec.id, spec.revision).to_dict()


def hub_card(_host: Host, spec: HubSpec) -> str:
    """Return the text of a model's card, "" where it has none."""
    from tunesmith_engine.hub.client import chosen_hub

    return chosen_hub().card(spec.id, spec.revision)


def download(host: Host, spec: HubSpec) -> str:
    """Download a model; return its folder."""
    from tunesmith_engine.hub.download import download

    return str(download(host, spec.id, spec.revision))


def push(host: Host, spec: PushSpec) -> Answer:
    """Upload an export; return where it is."""
    from tunesmith_engine.hub.upload import upload

    return upload(host, Path(spec.folder), spec.id, host.folder, public=spec.public)


def export(host: Host, spec: ExportSpec) -> Answer:
    """Export what a run has trained; return where it is."""
    chosen_weights(Run(Path(spec.run)), spec.checkpoint)
    from tunesmith_engine.export.export_run import export_run

    return export_run(host, spec)


def check_gguf(_host: Host, spec: RunSpec) -> None:
    """Refuse a run whose model can't become a GGUF file, as far as its settings and its tokenizer tell."""
    from tunesmith_engine.export.gguf.export import check_run

    check_run(spec)


def evaluate(host: Host, spec: EvaluateSpec) -> Answer:
    """Compare what a run has trained with its base model; return every figure."""
    chosen_weights(Run(Path(spec.run)), spec.checkpoint)
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
