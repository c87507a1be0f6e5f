"""Layers, parts and modules that a run's settings name and that its base model does not have, told by its files.

The engine decides on the model itself. What the files tell before is told early: nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunesmith_core.adapter_ranks import is_in_layers, layer_numbers, matching
from tunesmith_core.adapter_shapes import NO_LAYER, is_expert, is_linear
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec, continues, has_effect
from tunesmith_core.spec_sections import ALL_LINEAR
from tunesmith_core.spec_words import trained_modules
from tunesmith_core.trained_parts import ALL, FULL, is_chosen, is_named

Shapes = Mapping[str, tuple[int, ...]]

_PREFIXES = frozenset("backbone decoder gpt_neox language_model model transformer".split())
"""First parts of names that the files of some models leave out."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A setting that names what the model does not have.

    Attributes:
        path: of the setting.
        message: what the model lacks, and what it has instead.
        code: of the error that it is.
        is_certain: whether no run can have it; else the model may call a weight otherwise than its files.
    """

    path: str
    message: Message
    code: str = "spec-invalid"
    is_certain: bool = False


def unmatched(spec: RunSpec, shapes: Shapes) -> list[Unmatched]:
    """Return the settings that name what the model does not have.

    Args:
        spec: the run.
        shapes: of the base model's weights, by their names in its files.
    """
    # Of experts the library has other names than the files.
    has_experts = any(is_expert(name, shape) or "experts" in name for name, shape in shapes.items())
    if not shapes or continues(spec):
        # An adapter to start from is compared with the model itself.
        return []
    if spec.adapter.kind == FULL:
        return list(_parts(spec.adapter.parts, shapes, has_experts))
    layers = list(_layers(spec, shapes))
    if layers or has_experts:
        return layers
    modules = {name.rpartition(".")[0]: shape for name, shape in shapes.items()}
    targets = list(_targets(spec, shapes))
    return [*targets, *_modules(spec, modules), *([] if targets else _patterns(spec, shapes))]


def _parts(parts: str | Sequence[str], shapes: Shapes, has_experts: bool) -> Iterator[Unmatched]:
    for part in [] if parts == ALL else parts:
        known = has_experts and is_named(part)
        if known or part.strip() in _PREFIXES or any(is_chosen(*weight, [part]) for weight in shapes.items()):
            continue
        modules = sorted({name.split(".")[-2] for name in shapes if "." in name})
        message = Message(
            "The model has no part named {part}. Its modules are {known}.",
            part=shortened(part),
            known=", ".join(module for module in modules if not module.isdigit()),
        )
        yield Unmatched("adapter.parts", message, "trained-parts-missing", is_certain=True)


def _layers(spec: RunSpec, shapes: Shapes) -> Iterator[Unmatched]:
    wanted = layer_numbers(spec.adapter) if has_effect(spec, "adapter.layers") else None
    known = {int(part) for name in shapes for part in name.split(".")[:4] if part.isdigit()}
    if wanted and known and (missing := [number for number in wanted if number not in known]):
        last = max(known)
        message = Message(
            "The model has no layer {number}. Its layers are 0 to {last}.", number=missing[0], last=last
        )
        yield Unmatched("adapter.layers", message, is_certain=True)


def _targets(spec: RunSpec, shapes: Shapes) -> Iterator[Unmatched]:
    named = spec.adapter.target_modules
    if isinstance(named, str):
        return
    # Embeddings can have an adapter, too.
    tables = [name for name, shape in shapes.items() if len(shape) > 1]
    missing = [name for name in named if not _any_ends(tables, name) and name not in NO_LAYER]
    if missing:
        message = Message(
            "The model has no layer named {names}. Its linear layers are {known}.",
            names=shortened(", ".join(missing)),
            known=", ".join(linear_ends(shapes)),
        )
        yield Unmatched("adapter.target_modules", message, "lora-target-modules-missing")


def _modules(spec: RunSpec, modules: Shapes) -> Iterator[Unmatched]:
    for name in trained_modules(spec) if has_effect(spec, "adapter.modules_to_save") else ():
        # A head that is one with the embeddings is not in the files.
        if name in NO_LAYER or any(module == name or module.endswith(f".{name}") for module in modules):
            continue
        message = Message(
            "The model has no module named {name}. Its modules are {known}.",
            name=shortened(name),
            known=", ".join(sorted({module.rpartition(".")[2] for module in modules})),
        )
        yield Unmatched("adapter.modules_to_save", message, "trained-parts-missing")


def _patterns(spec: RunSpec, shapes: Shapes) -> Iterator[Unmatched]:
    targets, numbers = spec.adapter.target_modules, layer_numbers(spec.adapter)
    tables = (name for name, shape in shapes.items() if is_linear(name, shape) or targets != ALL_LINEAR)
    modules = [name.removesuffix(".weight") for name in tables if name.endswith(".weight")]
    if targets != ALL_LINEAR:
        modules = [name for name in modules if any(name == end or name.endswith(f".{end}") for end in targets)]
    modules = [name for name in modules if is_in_layers(numbers, name)]
    for name in ("rank_pattern", "alpha_pattern"):
        path = f"adapter.{name}"
        entries = getattr(spec.adapter, name) if has_effect(spec, path) else ()
        for pattern in (entry.partition("=")[0].strip() for entry in entries):
            if not any(matching([pattern], module) for module in modules):
                message = Message(
                    "No module with an adapter is called {pattern}. Those with one are {known}.",
                    pattern=shortened(pattern),
                    known=", ".join(sorted({module.rpartition(".")[2] for module in modules})),
                )
                yield Unmatched(path, message)


def linear_ends(shapes: Shapes) -> list[str]:
    """Return the last parts of the names of the linear layers, which "all-linear" means."""
    names = (name.removesuffix(".weight") for name, shape in shapes.items() if is_linear(name, shape))
    return sorted({name.rpartition(".")[2] for name in names})


def _any_ends(tensors: Sequence[str], name: str) -> bool:
    modules = (tensor.rpartition(".")[0] for tensor in tensors)
    return any(module == name or module.endswith(f".{name}") for module in modules)
