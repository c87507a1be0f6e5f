"""A whole run in a few kilobytes: every file and every type of event, as the program writes them."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import CHECKPOINT_MANIFEST, Run
from tunesmith_core.spec import RunSpec

GOOD = "good-01"

GPU = {"device": "cpu", "host_used_bytes": 1 << 30, "host_total_bytes": 1 << 33, "cpu_machine_percent": 50.0}
SETUP = {
    "total_steps": 4, "steps_per_epoch": 4, "num_train_rows": 8, "num_eval_rows": 2, "num_skipped_rows": 0,
    "num_truncated_rows": 0, "num_trained_tokens": 99, "num_parameters": 1000, "num_trainable_parameters": 10,
    "dtype": "float32", "micro_batch_size": 2, "gradient_accumulation_steps": 1, "kernels": ["RMSNorm: plain PyTorch"],
    "planned_bytes": 1 << 20, "tried_bytes": 1 << 20, "row_format": "chat",
}  # fmt: skip


def make_tiny_run(path: Path) -> Run:
    """Write a run that was stopped at step 3 after a checkpoint at step 2, and return it."""
    run = Run(path)
    saved = run.checkpoints_path / "step-000002"
    for folder in (run.control_path, saved, run.adapter_path):
        folder.mkdir(parents=True)
    spec = RunSpec(name="Tiny run")
    spec.model.path, spec.data.sources[0].path = "/models/Tiny", "/data/chats.jsonl"
    spec.evaluation.sample_prompts = ["Who?"]
    files.atomic_write_json(run.spec_path, spec.to_dict())
    files.atomic_write_json(path / "run.json", {"version": 1, "created_at": 1.79e9, "created": "2026-09-21T14:13:20"})
    files.atomic_write_json(saved / CHECKPOINT_MANIFEST, {"version": 1, "step": 2, "files": {}, "spec": spec.to_dict()})
    run.lease(supervisor=ProcessIdentity(999_999_999, 5, "boot"), engine=None)
    for name in ("engine.log", "heartbeat", "run.lock", "supervisor.log"):
        (path / name).write_text("line\n" * 3)
    _write_journal(run)
    return run


def _write_journal(run: Run) -> None:
    journal = JournalWriter(run.journal_path)
    journal.write("phase", name="queued")
    journal.write("hello", protocol="1.0", version="1", device="cpu", device_name="CPU", pid=7, threads=2)
    for name in ("model", "data"):
        journal.write("phase", name=name, done=1, total=2, unit="rows")
    journal.write("setup", **SETUP)
    journal.write("phase", name="training")
    for step in range(1, 4):
        more = {"tokens": 10 * step, "tokens_per_s": 20.0, "step_s": 0.5, "vram_peak_bytes": 0}
        journal.write("step", step=step, epoch=step / 4, loss=3.0 / step, lr=1e-4, grad_norm=1.0, **more)
        journal.write("gpu", **GPU)
    journal.write("eval", step=2, loss=2.0, num_tokens=9, seconds=0.1)
    journal.write("sample", step=2, prompt="Who?", text="Me.")
    journal.write("checkpoint", step=2, path="checkpoints/step-000002", bytes=100, seconds=0.1, kept=[2])
    journal.write("log", level="info", text="hello")
    journal.write("warning", code="cuda-oom", message="short of memory", hint="close programs")
    journal.write("ack", id="1", command="sample", ok=True, message="")
    journal.write("stopping", mode="save")
    journal.write("error", **TunesmithError("cuda-oom", "Step {step} did not fit.", step=3).to_dict())
    journal.write("result", status="stopped", step=3, seconds=2.0, artifacts={"adapter": "adapter"})
    journal.close()
