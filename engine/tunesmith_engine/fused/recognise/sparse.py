"""A mixture of experts: stacked weights, a router of whatever formula, and an MLP that all tokens go through.

The experts' formula is held against their own code on small stand-ins. The router is not read: it runs as written, see
`fused/routing.py`. What the block makes of both is held against its own code with its own router, where the model is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise import repeated, words
from tunesmith_engine.fused.recognise.body import first_of
from tunesmith_engine.fused.recognise.branches import Branches, read_branch_norms
from tunesmith_engine.fused.recognise.mlp import FUNCTIONS, read_mlp
from tunesmith_engine.fused.recognise.parts import activation_name, check_no_dropout, normalise, read_norm
from tunesmith_engine.fused.recognise.repeated import TriedRows
from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, agrees, copied, replaced, result_of
from tunesmith_engine.kernels import expert_rows
from tunesmith_engine.kernels.expert_rows import CLAMPED
from tunesmith_engine.model.stacked import Stack, stack_of
from tunesmith_engine.shapes import Beside, Gate, MlpShape, NotFusableError, SparseShape, Unfused

ROLE = "experts"
SHARED = ("shared_expert", "shared_experts", "shared_mlp")
SHARED_GATE = "shared_expert_gate"
NORM = "post_mlp_layernorm"
"""Of the block's output, inside it (A.X K1)."""
WEIGHTS = ("gate_up_proj", "down_proj")

NUM_EXPERTS = 3
"""Of a trial."""

SPREAD = 4.0
"""Of gate and up in a trial: wide enough that a clamped gate shows its limits."""

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Share of the largest number: what few roundings make of it. A factor left out makes far more."""


def read_sparse(module: nn.Module) -> SparseShape | Unfused | None:
    """Return the shape of a mixture of experts, the module itself where it isn't understood; None if it is none."""
    wrapped = getattr(module, ROLE, None)
    experts = _unwrapped(wrapped) if isinstance(wrapped, nn.Module) else None
    if experts is None:
        return None
    found = [stack_of(experts, role) for role in WEIGHTS]
    stacks = [stack for stack in found if stack is not None and stack.dtype.is_floating_point]
    if len(stacks) < len(WEIGHTS):
        return None
    try:
        return _read("mlp", module, wrapped, experts, stacks[-1])
    except NotFusableError as error:
        # The sentence names no layer: it is the same for all, and counted.
        return Unfused(module, error.message)


def _unwrapped(module: nn.Module) -> nn.Module:
    while hasattr(module, "base_layer"):
        module = module.base_layer
    return module


def _read(name: str, module: nn.Module, wrapped: Any, experts: nn.Module, down: Stack) -> SparseShape:
    branch_norms = None
    if isinstance(module, Branches):
        # Code of our own, which stands for the layer's.
        branch_norms = read_branch_norms(name, module)
    else:
        words.check_words(name, module, words.SPARSE)
    words.check_words(f"{name}.{ROLE}", experts, words.EXPERTS)
    check_no_dropout(name, module)
    if noise := [role for role, value in vars(module).items() if "jitter" in role and value]:
        # In training it changes what the experts read.
        raise NotFusableError("{name} adds noise to its input ({attribute}).", name=name, attribute=noise[0])
    is_repeated = repeated.takes_all(experts)
    transposed = is_repeated or bool(getattr(experts, "is_transposed", False))
    width = down.shape[1] if transposed else down.shape[2]
    shared_role = first_of(module, SHARED) or ""
    shared_module: nn.Module | None = getattr(module, shared_role) if shared_role else None
    shared = read_mlp(shared_module) if shared_module is not None else None
    shape = SparseShape(
        module=module,
        role=ROLE,
        experts=experts,
        wrapped=wrapped,
        num_experts=down.shape[0],
        width=width,
        per_token=0,
        gate=_read_gate(f"{name}.{ROLE}", experts, transposed),
        transposed=transposed,
        shared=shared if isinstance(shared, MlpShape) else None,
        shared_module=shared_module,
        shared_role=shared_role,
        shared_gate=getattr(module, SHARED_GATE, None),
        norm=read_norm(f"{name}.{NORM}", getattr(module, NORM)) if NORM in words.words(module) else None,
        norm_role=NORM if NORM in words.words(module) else "",
        scores=repeated.ROUTER if is_repeated else "",
        branch_norms=branch_norms,
        unfused_shared=shared.reason if isinstance(shared, Unfused) else None,
    )
    return _tried(name, shape, down)


def _read_gate(name: str, experts: nn.Module, transposed: bool) -> Gate:
    """Return what experts do with gate and up.

    Raises:
        NotFusableError: none of the formulas gives what their own code gives.
    """
    make = StandIns()
    # Rows of multiples of 16 bytes: PyTorch's grouped products, which the model's own code may take, ask for them.
    half = WIDTH + 4
    weights = [make.numbers(NUM_EXPERTS, 2 * half, WIDTH) * SPREAD, make.numbers(NUM_EXPERTS, WIDTH, half)]
    if transposed:
        weights = [weight.transpose(1, 2).contiguous() for weight in weights]
    parameters = dict(zip(WEIGHTS, weights, strict=True))
    biases = [role for role in (f"{role}_bias" for role in WEIGHTS) if getattr(experts, role, None) is not None]
    parameters |= {role: make.numbers(NUM_EXPERTS, WIDTH if "down" in role else 2 * half) for role in biases}
    if repeated.takes_all(experts) and not biases:
        for gate in _gates(experts):
            if repeated.computes(
                name, experts, parameters, lambda row, number: _expert(row, number, parameters, gate, True)  # noqa: B023
            ):
                return gate
        raise NotFusableError(
            "{name} ({kind}) has experts of an unsupported form.", name=name, kind=type(experts).__name__
        )
    twin = replaced(experts, {}, {role: nn.Parameter(weight) for role, weight in parameters.items()})
    twin.num_experts = NUM_EXPERTS
    x, chosen = make.numbers(NUM_TOKENS, WIDTH), torch.tensor([[0, 2]]).expand(NUM_TOKENS, 2).contiguous()
    chosen[1:3] = torch.tensor([1, 0])
    of_tokens = make.numbers(NUM_TOKENS, 2)
    # What the loop over experts and what a faster way of transformers give: both are the model's own.
    results = [
        result_of(name, lambda run=run: run(twin, x, chosen, of_tokens))  # type: ignore[misc]
        for run in (inspect.unwrap(type(experts).forward), type(experts).forward)
    ]
    for gate in _gates(experts):
        total = torch.zeros_like(x)
        for token in range(NUM_TOKENS):
            for number, expert in enumerate(chosen[token].tolist()):
                total[token] += of_tokens[token, number] * _expert(x[token], expert, parameters, gate, transposed)
        if all(agrees(result, total) for result in results):
            return gate
    raise NotFusableError("{name} ({kind}) has experts of an unsupported form.", name=name, kind=type(experts).__name__)


def _gates(experts: nn.Module) -> Iterator[Gate]:
    """Yield what experts of these attributes may do."""
    limits = [value for role in ("limit", "alpha") if isinstance(value := getattr(experts, role, None), float)]
    functions = [part for role in FUNCTIONS if callable(part := getattr(experts, role, None))]
    for in_turn in (False, True):
        if functions:
            yield Gate(activation_name(functions[0]), in_turn)
        if len(limits) == 2:
            yield Gate(CLAMPED, in_turn, *limits)


def _expert(
    x: torch.Tensor, expert: int, parameters: dict[str, torch.Tensor], gate: Gate, transposed: bool
) -> torch.Tensor:
    """Return what one expert makes of one token, by plain operations."""

    def product(role: str, numbers: torch.Tensor) -> torch.Tensor:
        weight, bias = parameters[role][expert], parameters.get(f"{role}_bias")
        found = functional.linear(numbers, weight.t() if transposed else weight)
        return found if bias is None else found + bias[expert]

    gate_up = product("gate_up_proj", x[None])
    inner = torch.empty(1, gate_up.shape[1] // 2)
    return product("down_proj", expert_rows._activate_rows_twin(gate_up, gate, inner))[0]


def _tried(name: str, shape: SparseShape, down: Stack) -> SparseShape:
    """Return a shape with what the block's own code tells: experts of each token, the factor, and what it returns.

    Raises:
        NotFusableError: the block combines its parts in another way.
    """
    module = shape.module
    if down.device.type == "meta":
        raise NotFusableError("{name} has no weights to try.", name=name)
    hidden = down.shape[2] if shape.transposed else down.shape[1]
    x = StandIns().numbers(1, NUM_TOKENS, hidden).to(down.device, down.dtype)
    parts: dict[str, nn.Module] = {shape.role: _Tried() if not shape.scores else TriedRows(shape.num_experts)}
    if shape.shared_role:
        parts[shape.shared_role] = _Shared()
    whole, stop = twin_of(module, parts), Caught()
    block = twin_of(module, {**parts, shape.role: stop})
    flat = x[0]
    result, norms = seeded(name, x.device, lambda: whole(x.clone())), shape.branch_norms
    if shape.scores:
        scores = seeded(name, x.device, lambda: repeated.scores_of(module, flat))
        per_token = repeated.per_token_of(name, scores, shape.num_experts)
        mixed = repeated.mixed(flat, scores, per_token)
    else:
        chosen = seeded(name, x.device, lambda: caught(block, stop, x.clone()))
        read = flat if norms is None else normalise(flat, norms.before_experts)
        mixed, per_token = _Tried()(read, *chosen), chosen[0].shape[-1]
        if norms is not None:
            mixed = normalise(mixed, norms.behind_experts)
    output = result[0] if isinstance(result, tuple) else result
    shared = torch.zeros_like(flat)
    if shape.shared_role:
        shared = _Shared()(flat if norms is None else normalise(flat, norms.before))
        if norms is not None:
            shared = normalise(shared, norms.behind)
        if shape.shared_gate is not None:
            gate = shape.shared_gate
            shared = shared * torch.sigmoid(seeded(name, x.device, lambda: gate(flat)))
    scales = dict.fromkeys([1.0, *(value for value in vars(module).values() if type(value) is float)])
    # Both may be averaged (Cohere).
    averages = [(0.5, 0.5)] if shape.shared_gate is None else []
    for scale, of_shared in [*((scale, 1.0) for scale in scales), *averages]:
        expected = (mixed * scale + shared * of_shared).to(x.dtype)
        if shape.norm is not None:
            expected = normalise(expected, shape.norm)
        found = output.reshape(flat.shape).to(x.dtype)
        if (found - expected).abs().max() <= ROUNDING[x.dtype] * expected.abs().max():
            pair = isinstance(result, tuple)
            return replace(shape, per_token=per_token, scale=scale, shared_scale=of_shared, returns_pair=pair)
    raise NotFusableError(
        "{name} ({kind}) combines its experts in an unsupported way.", name=name, kind=type(module).__name__
    )


def seeded(name: str, device: torch.device, run: Callable[[], Any]) -> Any:  # Any: what a module returns
    """Return what code gives with the same random numbers each time.

    Raises:
        NotFusableError: it can't run.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        found: list[Any] = []
        result_of(name, lambda: found.append(run()) or torch.empty(0))  # type: ignore[func-returns-value]
        return found[0]


class _Tried(nn.Module):
    """Stands for the experts in a trial: tells tokens, choices and weights apart."""

    def forward(self, x: torch.Tensor, *called: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        """Return numbers in which all that it is given shows."""
        chosen, weights = _told_apart([*called, *named.values()])
        shares = (weights.float() * (1 + 0.1 * chosen)).sum(-1, keepdim=True)
        return (torch.cos(2 * x.float()) * shares).to(x.dtype)


class _Shared(nn.Module):
    """Stands for the MLP that all tokens go through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return numbers that no expert gives."""
        return torch.sin(3 * x)


class _CaughtError(Exception):
    """Ends a block's forward pass before its experts."""


class Caught(nn.Module):
    """Stands for the experts: keeps what they are called with and ends the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.called: tuple[Any, ...] = ()

    def forward(self, _: torch.Tensor, *called: torch.Tensor, **named: torch.Tensor) -> None:
        """Keep the arguments and end the pass."""
        self.called = (*called, *named.values())
        raise _CaughtError


def caught(block: nn.Module, experts: Caught, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts that a block chooses, integers [T, k], and their weights, [T, k], for x, [1, T, hidden].

    Raises:
        ValueError: the block calls its experts in another way, or not at all.
    """
    try:
        block(x)
    except _CaughtError:
        called, experts.called = experts.called, ()
        return _told_apart(called)
    raise ValueError("its experts are not called")


def _told_apart(called: Any) -> tuple[torch.Tensor, torch.Tensor]:  # Any: a sequence of tensors
    """Return choices and weights."""
    chosen = [part for part in called if not part.is_floating_point()]
    weights = [part for part in called if part.is_floating_point()]
    if len(chosen) == len(weights) == 1 and chosen[0].shape == weights[0].shape:
        return chosen[0], weights[0]
    raise ValueError("its experts are called in another way")


def twin_of(module: nn.Module, parts: dict[str, nn.Module]) -> nn.Module:
    """Return a module with the same code, mode and weights, where they are, but other parts."""
    twin = copied(module, type(module))
    twin._modules = {**module._modules, **parts}
    return twin


def written(shape: SparseShape) -> nn.Module:
    """Return a module that computes a mixture of experts as it was written, without the norm that is its layer's."""
    block = twin_of(shape.module, {shape.norm_role: nn.Identity()}) if shape.norm is not None else shape.module
    parts = shape.parts
    return block if len(parts) == 1 else Beside([block, *parts[1:]])
