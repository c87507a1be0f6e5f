"""The router of a mixture of experts: the block's own code up to its experts, which are never called.

So every formula of every model is followed to the bit (softmax before or behind the choice, sigmoid with a correction,
groups, scaling, noise), and PyTorch differentiates it; it is small beside the experts.

# T tokens, k experts of each, E experts
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from tunesmith_engine.fused.balance import Balance
from tunesmith_engine.fused.plain_modules import random_states, set_random_states
from tunesmith_engine.fused.quiet import is_quiet
from tunesmith_engine.fused.recognise.balance import watched
from tunesmith_engine.fused.recognise.repeated import chosen_of, scores_of
from tunesmith_engine.fused.recognise.sparse import Caught, caught, twin_of
from tunesmith_engine.shapes import SparseShape


@dataclass(frozen=True, slots=True)
class Choice:
    """What a router decides.

    Attributes:
        experts: of each token, integers [T, k].
        weights: of them, in float32 at least, [T, k].
        factor: of the shared MLP's output, [T, 1], or None for 1.
        logits: of all experts, [T, E], where their use is balanced, else None.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    factor: torch.Tensor | None
    logits: torch.Tensor | None = None

    @property
    def learned(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What has gradients."""
        return self.weights, self.factor


class Router:
    """Runs a block up to its experts.

    Attributes:
        balance: counts the experts of a micro-batch, or None.
    """

    def __init__(
        self,
        shape: SparseShape,
        autocast: torch.dtype | None,
        balance: Balance | None = None,
        for_answers: bool = False,
    ) -> None:
        """Take the block's parts.

        Args:
            shape: of the mixture.
            autocast: number format of the block's products, or None for that of its weights.
            balance: see the class.
            for_answers: the block is in evaluation mode whatever mode the model is in, so it draws nothing.
        """
        self._shape, self._autocast, self.balance = shape, autocast, balance
        self._for_answers = for_answers
        self._logits: list[torch.Tensor] = []
        self._experts = Caught()
        parts: dict[str, nn.Module] = {shape.role: self._experts}
        if shape.shared_role:
            # Some blocks compute it first.
            parts[shape.shared_role] = nn.Identity()
        if shape.branch_norms is not None:
            # Of what the experts read, which are never called.
            parts["before_experts"] = nn.Identity()
        self._block = twin_of(shape.module, parts)
        self._states: list[torch.Tensor] | None = None

    def choose(self, x: torch.Tensor) -> Choice:
        """Return what is chosen for x, [T, hidden]; the random numbers are new ones."""
        if self._for_answers:
            with self._evaluating():
                return self._run(x)
        # What a graph holds draws nothing, and the generators' states can't be read meanwhile.
        self._states = None if x.is_cuda and torch.cuda.is_current_stream_capturing() else random_states(x.device)
        choice = self._run(x)
        if self.balance and choice.logits is not None:
            self.balance.add(choice.logits)
        return choice

    def choose_again(self, x: torch.Tensor) -> Choice:
        """Return what `choose` returned; the random numbers are those of then."""
        if self._states is None:
            with torch.enable_grad():
                return self._run(x)
        present = random_states(x.device)
        set_random_states(self._states, x.device)
        with torch.enable_grad():
            found = self._run(x)
        set_random_states(present, x.device)
        return found

    def may_be_captured(self, x: torch.Tensor) -> bool:
        """Return whether a graph can hold what is done for x, [T, hidden]: nothing is drawn, nothing waited for.

        What is drawn to find that out is drawn again by the run, which would otherwise depend on this question.
        """
        before = random_states(x.device)
        try:
            waits = not is_quiet(lambda: self._try_out(x), x.device)
            return not waits and all(map(torch.equal, before, random_states(x.device)))
        finally:
            set_random_states(before, x.device)

    def _try_out(self, x: torch.Tensor) -> None:
        """Run the block forward and backward; no gradient is kept."""
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            choice = self._run(leaf)
        learned = [part for part in choice.learned if part is not None]
        torch.autograd.grad(learned, leaf, [torch.zeros_like(part) for part in learned], allow_unused=True)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Make the context in which the block and its parts are in evaluation mode."""
        modes = [(module, module.training) for module in self._block.modules()]
        for module, _ in modes:
            module.training = False
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode

    def _run(self, x: torch.Tensor) -> Choice:
        enabled = self._autocast is not None
        self._block.training = self._shape.module.training and not self._for_answers
        with torch.autocast(x.device.type, self._autocast or torch.float32, enabled=enabled):
            with self._watching():
                if self._shape.scores:
                    experts, weights = chosen_of(scores_of(self._shape.module, x), self._shape.per_token)
                else:
                    experts, weights = caught(self._block, self._experts, x[None])
            gate = self._shape.shared_gate
            factor = None if gate is None else torch.sigmoid(gate(x))
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        if self._shape.scale != 1.0:
            weights = weights * self._shape.scale
        return Choice(experts, weights, factor, self._logits.pop() if self._logits else None)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Make the context in which the router's logits are taken, where they are wanted."""
        if self.balance is None:
            yield
            return
        of_kind = self.balance.shape
        router = next(each for each in self._shape.module.modules() if isinstance(each, of_kind.router))
        handle = watched(router, of_kind.index, self._logits.append)
        try:
            yield
        finally:
            handle.remove()
