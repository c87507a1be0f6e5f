"""Takes what a run has trained out of it, into a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from tunesmith_core import files
from tunesmith_core.chat_templates import OWN
from tunesmith_core.checkpoint_manifest import read_manifest
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import UNKNOWN_LICENCE, export_folder, formats_of, needs_base
from tunesmith_core.model_json import read_object
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.other_programs import ollama_name
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run
from tunesmith_core.spec_words import trains_whole
from tunesmith_engine.export.adapter import write_adapter
from tunesmith_engine.export.adapter_card import adapter_card, base_model_license
from tunesmith_engine.export.merged_card import merged_card, verdict
from tunesmith_engine.export.merged_model import CARD_NAME, MergedModel, write_chat_template
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.progress import Progress
from tunesmith_engine.export.proof import EQUAL_NATS, Answer, Figures, Tokenizer, compare
from tunesmith_engine.export.staging import PROOF_NAME, Staging, is_exported, staged
from tunesmith_engine.export.trained import Trained, digest, find_trained, load_base
from tunesmith_engine.export.using import Takers, commands
from tunesmith_engine.export.verifying import Way, verify
from tunesmith_engine.model.folder import model_folder
from tunesmith_engine.model.heads import head_of, kind_of_model
from tunesmith_engine.model.vocabulary import growth_of, words_of


def export_run(host: Host, spec: ExportSpec) -> dict[str, Any]:  # Any: JSON values
    """Export a run.

    Args:
        host: told how far it is.
        spec: what and where to.

    Returns:
        Path, format, step and bytes of the export, whether it was there already, the base model's licence, the proof,
        and commands that use it.

    Raises:
        TunesmithError: `nothing-to-export`, `export-target-taken`, `export-unsupported`, `disk-full` and what loading
            finds. Nothing is left then. `other-program-failed` after the export is complete.
    """
    takers = Takers(spec)
    run = Run(Path(spec.run))
    trained = find_trained(run, spec.checkpoint)
    _refuse_gguf_of_head(trained, spec)
    folder = _base_folder(host, trained, spec)
    notes = trained.check_base(folder).notes if folder else trained.noted_base()
    target = Path(spec.to) if spec.to else export_folder(run, trained.step, spec.label)
    identity = {
        "format": spec.label,
        "run": run.created_at,
        "step": trained.step,
        "weights": digest(trained),
        "base_model": {name: note.sampled for name, note in notes.items()},
    }
    exists = is_exported(target, identity)
    if not exists:
        with staged(target, identity) as staging:
            if folder is None:
                _copy_adapter(host, trained, staging)
            else:
                _write(host, spec, trained, folder, staging)
            host.phase("publishing")
            staging.publish()
    return {
        **takers.hand_over(host, target),
        "path": str(target),
        "format": spec.label,
        "step": trained.step,
        "bytes": files.folder_bytes(target),
        "existed": exists,
        "licence": base_model_license(folder) if folder else UNKNOWN_LICENCE,
        "trained_on_bits": trained.quantized_bits(folder) if folder and "adapter" not in spec.format else 0,
        "commands": _commands(spec, target, trained),
        "proof": read_object(target / PROOF_NAME) if (target / PROOF_NAME).is_file() else None,
    }


def _commands(spec: ExportSpec, target: Path, trained: Trained) -> list[str]:
    """Return commands of programs that chat with an export."""
    if head_of(trained.spec):
        return []
    if spec.format == "adapter" and trains_whole(trained.spec):
        # vLLM takes the two matrices of a layer only.
        return []
    name = ollama_name(trained.run, spec.type)
    return commands(spec.format, target, trained.spec.model.path, name, system_prompt_of(trained.run))


def _refuse_gguf_of_head(trained: Trained, spec: ExportSpec) -> None:
    """Refuse files for programs that write texts where the model rates them. Raises UserError `export-unsupported`."""
    if spec.format not in formats_of(trained.spec.objective.kind):
        raise TunesmithError(
            "export-unsupported",
            "This model rates texts and writes none. Programs that read GGUF files expect one that writes.",
            hint="Export the merged model or the adapter instead.",
        )


def _base_folder(host: Host, trained: Trained, spec: ExportSpec) -> Path | None:
    """Return the folder of the base model, None with a warning where it is not there and not needed."""
    try:
        return model_folder(trained.spec.model)
    except TunesmithError as error:
        if needs_base(spec.format, is_finished=trained.is_adapter):
            raise
        host.warning(error.code, error.message)
        return None


def _write(host: Host, spec: ExportSpec, trained: Trained, folder: Path, staging: Staging) -> None:
    if trained.is_full and spec.format in ("adapter", "gguf-adapter"):
        raise TunesmithError(
            "export-unsupported",
            "Full fine-tuning makes a whole model, which has no adapter.",
            hint="Export the whole model, or a GGUF file.",
        )
    match spec.format:
        case "merged":
            _write_merged(host, trained, folder, staging)
        case "adapter":
            _write_adapter(host, trained, folder, staging)
        case "gguf":
            # Imported here: other formats need no GGUF.
            from tunesmith_engine.export.gguf.export import write_gguf

            write_gguf(host, trained, folder, staging, spec.type)
        case "gguf-adapter":
            from tunesmith_engine.export.gguf.adapter import write_gguf_adapter

            write_gguf_adapter(host, trained, folder, staging)


def _write_merged(host: Host, trained: Trained, folder: Path, staging: Staging) -> None:
    host.phase("merging")
    model = trained.load(folder)
    merged = MergedModel(folder, lambda shapes: Merging(model, shapes))
    progress = Progress(host, "merging", merged.num_bytes)
    merged.write(staging, progress.advance)
    if words_of(trained.spec):
        trained.tokenizer(folder).save_pretrained(staging.folder)
    if trained.spec.model.chat_template != OWN:
        write_chat_template(trained.tokenizer(folder), staging.folder)
    kind = kind_of_model(head_of(trained.spec))

    def measure(answers: Sequence[Answer], _: Tokenizer) -> Figures:
        return compare(answers, _merged(staging.folder, kind))

    way = Way("merged", measure, EQUAL_NATS, merged.type, merged.rounding)
    proof = verify(host, trained, folder, staging, way)
    files.atomic_write_text(staging.folder / CARD_NAME, merged_card(trained, folder, merged.type, proof))


def _merged(folder: Path, kind: Any) -> Any:  # Any: a transformers model and its class
    """Load a merged model as anybody does, in float32 so that only its weights count."""
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def _copy_adapter(host: Host, trained: Trained, staging: Staging) -> None:
    host.phase("saving")
    staging.check_space(2 * trained.num_bytes)
    for path in sorted(trained.folder.iterdir()):
        if path.is_file():
            shutil.copyfile(path, staging.folder / path.name)


def _write_adapter(host: Host, trained: Trained, folder: Path, staging: Staging) -> None:
    if trained.is_adapter:
        _copy_adapter(host, trained, staging)
    else:
        host.phase("saving")
        staging.check_space(2 * trained.num_bytes)
        write_adapter(trained.load(folder), trained.tokenizer(folder), _adapter_card(trained, folder), staging.folder)
    way = Way("adapter", lambda answers, _: compare(answers, _adapted(trained, folder, staging.folder)), EQUAL_NATS)
    proof = verify(host, trained, folder, staging, way)
    card = staging.folder / CARD_NAME
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    files.atomic_write_text(card, f"{text}\n## Compared with the trained model\n\n{verdict(proof)}\n")


def _adapted(trained: Trained, folder: Path, adapter: Path) -> Any:  # Any: a model of PEFT
    base = load_base(folder, head_of(trained.spec), growth_of(folder, trained.spec))
    return PeftModel.from_pretrained(base, str(adapter)).eval()


def _adapter_card(trained: Trained, folder: Path) -> str:
    """Return the card of an adapter from a checkpoint, as the end of its run would write it."""
    setups = [event.data for event in read_journal(trained.run.journal_path) if event.type == "setup"]
    rows = setups[-1] if setups else {}
    return adapter_card(
        trained.spec,
        model_folder=folder,
        data_hash=str(read_manifest(trained.folder).fingerprint.get("data", "unknown")),
        num_train_rows=rows.get("num_train_rows") or 0,
        num_eval_rows=rows.get("num_eval_rows") or 0,
        system_prompt=system_prompt_of(trained.run),
        step=trained.step,
        eval_loss_before=None,
        eval_loss_after=None,
        preferences=None,
    )
