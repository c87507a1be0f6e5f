"""What mixes tokens and isn't understood, run as written on the documents of a micro-batch.

Documents of one length that follow each other pass together, each as if it were alone: nothing is padded, no state and
no attention reaches from one to the next. The backward pass runs the module once more with autograd.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from tunesmith_engine.attention import shared
from tunesmith_engine.fused.plain_modules import PlainModules, random_states, set_random_states
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.recognise.handed import Handing, Run
from tunesmith_engine.packed.batch import Documents, PackedBatch


class PlainDocuments(PlainModules):
    """A module that is called as its decoder calls it.

    Random numbers are the same each time for each of the runs into which the documents are divided.
    """

    def __init__(
        self, module: nn.Module, index: int, handing: Handing, hidden_size: int, autocast: torch.dtype | None
    ) -> None:
        super().__init__((module,), hidden_size, hidden_size, autocast)
        self._module, self._index, self._handing = module, index, handing
        self._of_run: dict[int, list[torch.Tensor]] = {}
        self._repeats = False

    def begin_forward(self) -> None:
        """Draw new random numbers from now on."""
        self._of_run, self._repeats = {}, False

    def begin_backward(self) -> None:
        """Repeat the random numbers of the forward pass from now on."""
        self._repeats = True

    def forward_documents(self, x: torch.Tensor, documents: Documents, out: torch.Tensor) -> None:
        """Write the module's output for x, [T, hidden], to out, [T, hidden]."""
        x = shared.whole(x, documents)
        result = out if documents.shared is None else torch.empty_like(x)
        with torch.no_grad():
            for number, run in enumerate(self._handing.runs):
                with self._randomness(number, x.device):
                    result[run.rows].copy_(self._output(run, x[run.rows]))
        if documents.shared is not None:
            torch.index_select(result, 0, documents.shared.first, out=out)

    def backward_documents(
        self, gradient: torch.Tensor, x: torch.Tensor, documents: Documents, out: torch.Tensor | None
    ) -> None:
        """Write the input's gradient to out, if given, and add those of trained weights to what is there.

        `out` may be `gradient`.
        """
        x = shared.whole(x, documents)
        to_x = out
        gradient = shared.slopes(gradient, documents)
        if documents.shared is not None:
            to_x = torch.empty_like(x)
        for number, run in enumerate(self._handing.runs):
            with torch.enable_grad(), self._randomness(number, x.device):
                leaf = x[run.rows].detach().requires_grad_(out is not None)
                output = self._output(run, leaf)
                if output.requires_grad:
                    output.backward(gradient[run.rows].to(output.dtype))
            if to_x is not None:
                _take(to_x[run.rows], leaf.grad)
        if documents.shared is not None and to_x is not None and out is not None:
            shared.collect(to_x, documents.shared, out)

    def try_once(self, batch: PackedBatch, x: torch.Tensor) -> None:
        """Go forward and backward on a micro-batch, for what that takes; no gradient of a weight is touched."""
        self._handing.begin(batch, x.dtype, x.shape[0])
        with torch.enable_grad(), torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
            for run in self._handing.runs:
                leaf = x[run.rows].detach().requires_grad_()
                output = self._output(run, leaf)
                torch.autograd.grad(output, leaf, torch.zeros_like(output), allow_unused=True)
        self._handing.runs = ()

    def _output(self, run: Run, x: torch.Tensor) -> torch.Tensor:
        """Return the module's output for the rows of a run."""
        with torch.autocast(x.device.type, self._autocast or torch.float32, enabled=self._autocast is not None):
            result = run.calls[self._index].run(self._module, x.unflatten(0, (run.number, -1)))
        return result.flatten(0, 1)

    @contextlib.contextmanager
    def _randomness(self, number: int, device: torch.device) -> Iterator[None]:
        """Note which random numbers a run draws, or let it draw them again."""
        present = random_states(device)
        if not self._repeats:
            self._of_run[number] = present
            yield
            return
        set_random_states(self._of_run[number], device)
        yield
        set_random_states(present, device)


def _take(out: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Write a gradient; none is a gradient of zeros."""
    if gradient is None:
        out.zero_()
    else:
        out.copy_(gradient)


class PlainMixer:
    """Does what `AttentionBlock` does by the module that the model has in attention's place; it leaves no buffers."""

    qkv_width = heads_width = 0

    def __init__(self, inputs: PlainDocuments) -> None:
        self.inputs = self.output = inputs
        self._x: torch.Tensor | None = None
        self._documents: Documents | None = None

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:  # noqa: ARG002 (as attention has it)
        """Return whether a graph of a batch serves others of the same sizes."""
        return False

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:  # noqa: ARG002
        """Take note of the normalised input, [T, hidden]."""
        self._x = x

    def attend(
        self,
        qkv: torch.Tensor,  # noqa: ARG002 (as attention has it)
        heads: torch.Tensor,  # noqa: ARG002
        rotary: Rotary,  # noqa: ARG002
        documents: Documents,
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Take note of the documents."""
        self._documents = documents
        return ()

    def put_out(self, qkv: torch.Tensor, heads: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:  # noqa: ARG002
        """Write the block's output, [T, hidden]; PEFT's own `disable_adapter` switches adapters off."""
        if self._x is None or self._documents is None:
            raise TypeError("A mixer has no input.")
        self.inputs.forward_documents(self._x, self._documents, out)

    def fill_columns(self, heads: torch.Tensor) -> None:
        """Do nothing: there are none."""

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        qkv: torch.Tensor,  # noqa: ARG002 (as attention has it)
        heads: torch.Tensor,  # noqa: ARG002
        saved: tuple[tuple[torch.Tensor, ...], ...],  # noqa: ARG002
        rotary: Rotary,  # noqa: ARG002
        documents: Documents,
        out: torch.Tensor | None,
    ) -> None:
        """Write the gradient of the normalised input and add those of adapters; see `AttentionBlock.backward`."""
        self.inputs.backward_documents(gradient[:, : self.inputs.num_outputs], x, documents, out)
