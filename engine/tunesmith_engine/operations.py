"""Short operations of the engine, declared in `tunesmith_core.operations.kinds`; each imports what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.engine import ImportSpec, NoSpec, PreviewSpec, SelftestSpec
from tunesmith_core.spec import RunSpec

Answer = dict[str, Any]  # Any: JSON values


def preview(_host: Host, spec: PreviewSpec) -> Answer:
    """Return how rows become trained tokens."""
    from tunesmith_engine.data.preview import preview
    from tunesmith_engine.model.folder import load_tokenizer, model_folder

    return preview(spec.run, load_tokenizer(model_folder(spec.run.model)), spec.num_rows)


def check(_host: Host, spec: RunSpec) -> Answer:
    """Train one real step on the longest batch; return what it took."""
    from tunesmith_engine.plan_check import plan_check

    return plan_check(spec)


def import_gguf(_host: Host, spec: ImportSpec) -> Answer:
    """Convert a GGUF file into a model folder; return its path and size."""
    from tunesmith_engine.gguf_import import import_gguf

    return import_gguf(Path(spec.source), Path(spec.target))


def libraries(_host: Host, _spec: NoSpec) -> Answer:
    """Return what the libraries see of this machine."""
    from tunesmith_engine.probe import probe

    return probe()


def selftest(host: Host, spec: SelftestSpec) -> Answer:
    """Prove that this environment trains on this machine; return every step."""
    from tunesmith_engine.selftest import selftest

    return selftest(spec.device, lambda step: host.event("check", **step))
