"""The fused model: drives a recognised model forward and backward, layer by layer, without autograd.

The transformers model stays what it is: saving, loading and generating go through it, and its trained parameters are
the very tensors that are updated here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from peft import PeftModel

from tunesmith_core.errors import TunesmithError
from tunesmith_core.kernel_words import BALANCED
from tunesmith_core.messages import Message
from tunesmith_engine.data.example import Example
from tunesmith_engine.device import Compute
from tunesmith_engine.fused import fp8
from tunesmith_engine.fused.agreement import check_agreement, small_plan
from tunesmith_engine.fused.altup_layer import AltUpLayer
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.graphs import StepGraphs, fixed_sizes, launching_s, most_tokens
from tunesmith_engine.fused.layer import FusedLayer, Pass
from tunesmith_engine.fused.memory import MemoryPlan, MemoryPlanner, WholeWeights
from tunesmith_engine.fused.noise import Noise
from tunesmith_engine.fused.plain_layer import PlainLayer
from tunesmith_engine.fused.policy import describe
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.host_memory import PinningError
from tunesmith_engine.kernels import rms_norm
from tunesmith_engine.kernels.embedding import add_positions, embed
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.model.other_weights import Weights, reference_of, start_of
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.shapes import NotFusableError


class FusedModel:
    """Computes losses and gradients of one model.

    Attributes:
        arena: weights and gradients of the trained parameters of an adapter; None where whole weights are trained.
        report: what runs fused, what doesn't and why, a sentence each.
        plan: the memory that it is expected to take.
        temperature: what logits are divided by before they are probabilities.
    """

    def __init__(self, model: PeftModel, assembly: Assembly, planner: MemoryPlanner, plan: MemoryPlan) -> None:
        self._model, self._assembly, self._planner = model, assembly, planner
        self.arena = assembly.arena if assembly.gradients is None else None
        self._refresh_graph: torch.cuda.CUDAGraph | None = None
        self._num_refreshes = 0
        self._noise: Noise | None = None
        self._fp8_report: list[str] = []
        self._fp8_notes: list[str] = []
        self._wanted_tokens = plan.capacity_tokens
        self.temperature = 1.0
        self._use(plan)

    @classmethod
    def attach(
        cls,
        model: PeftModel,
        compute: Compute,
        capacity_tokens: int,
        policy: str = "auto",
        memory_bytes: int | None = None,
        optimizer_bytes_per_weight: float = 8.0,
        fp8: bool = False,
        longest_tokens: int | None = None,
        steps_vary: bool = False,
        spread: float = 1.0,
        whole: WholeWeights | None = None,
    ) -> FusedModel:
        """Build the fused twin of a model.

        Args:
            model: a transformers model with PEFT adapters, on its device.
            compute: the run's device and number format.
            capacity_tokens: most tokens of a micro-batch.
            policy: "auto" or a name that policy.py knows.
            memory_bytes: memory of the GPU that the run may take, weights included; None takes what is free.
            optimizer_bytes_per_weight: what the optimizer will keep of each trained weight.
            fp8: multiply with frozen weights in 8 bits if the model bears it; the report says what came of it.
            longest_tokens: of a row, if the plan may make micro-batches smaller than `capacity_tokens`.
            steps_vary: most micro-batches have far fewer tokens than that.
            spread: most times as many tokens that attention sees, see `SharedBeginnings`.
            whole: what the training of whole weights takes; None for an adapter.

        Raises:
            NotFusableError: with a sentence for the person; the model is then as before.
        """
        assembly = Assembly(model, recognise(model), compute)
        sizes = capacity_tokens, memory_bytes, optimizer_bytes_per_weight, longest_tokens, steps_vary, spread, whole
        planner = MemoryPlanner(assembly, *sizes)
        plan = planner.plan(policy)
        # In little memory: whether a whole step fits is the first step's question.
        fused = cls(model, assembly, planner, small_plan(plan))
        try:
            check_agreement(model, compute, assembly.head.num_outputs, fused.loss)
        except NotFusableError:
            fused.detach()
            raise
        if fp8:
            fused._try_fp8()
            # The copies of the weights have taken memory, and the buffers so far have to go before it is counted.
            fused._drop_buffers()
            planner = MemoryPlanner(assembly, *sizes)
            fused._planner, plan = planner, planner.plan(policy)
        fused._wanted_tokens = capacity_tokens
        fused._change(plan)
        return fused

    def add_noise(self, alpha: float) -> None:
        """Add NEFTune's noise to the embedded tokens of training steps from now on; none where alpha is 0."""
        if alpha:
            shape = self._assembly.shape
            # What the model multiplies behind its embedding, it multiplies the noise with as well.
            factor = 1.0 if hasattr(shape.embedding, "embed_scale") else shape.embedding_scale
            self._noise = Noise(alpha * factor, self._assembly.masks.reserve())

    def _try_fp8(self) -> None:
        """Multiply in 8 bits from now on, if that is possible and hardly changes loss and gradient."""
        assembly, exact = self._assembly, self._assembly.projections
        problem = fp8.problem(assembly.compute, exact)
        if problem is None:
            before = self._measure()
            try:
                assembly.use(fp8.quantised(exact))
            except torch.OutOfMemoryError:
                problem = Message("The 8-bit copies of the weights don't fit into VRAM.")
        if problem is None:
            self._change(self.plan)
            quality = fp8.Quality.of(before, self._measure())
            if quality.suffices:
                self._fp8_report = [Message("8-bit products are on. {quality}", quality=quality.sentence)]
                return
            assembly.use(exact)
            problem = Message("They would change this model too much. {quality}", quality=quality.sentence)
        self._fp8_report = self._fp8_notes = [Message("8-bit products are off. {problem}", problem=problem)]

    def _measure(self) -> fp8.Measured:
        """Return loss and gradient of a few tokens; the arena's gradients are zero before and after."""
        compute = self._assembly.compute
        batch = fp8.random_batch(self._assembly.shape.embedding.num_embeddings, compute.device)
        # Dropout in what isn't fused draws the same numbers each time, and none of the run's.
        with torch.no_grad(), torch.random.fork_rng([compute.device] if compute.device.type == "cuda" else []):
            torch.manual_seed(0)
            loss = self._step(batch, torch.ones((), device=compute.device)).item()
        gradients = self._assembly.arena.gradients
        measured = fp8.Measured(loss, gradients.clone())
        gradients.zero_()
        return measured

    def _change(self, plan: MemoryPlan) -> None:
        self._drop_buffers()
        self._use(plan)

    def _drop_buffers(self) -> None:
        """Let the old buffers go before new ones come; there are none where the last plan's did not fit."""
        vars(self).pop("_parts", None)
        self._graphs: StepGraphs | None = None
        # It may read memory that goes now.
        self._refresh_graph, self._num_refreshes = None, 0
        self._assembly.scratch.give_back()
        if self._assembly.gradients:
            self._assembly.gradients.give_back()

    def _use(self, plan: MemoryPlan) -> None:
        """Build layers, buffers and store for a plan."""
        self.plan = plan
        try:
            self._assembly.places.place(plan.embedding_on_host, plan.experts_on_host)
            self._parts = self._assembly.build(plan.policies, plan.capacity_tokens, plan.tiling)
        except PinningError:
            self._use(self._planner.without_pinning(plan))
            return
        self._graphs = None
        if self._assembly.compute.device.type == "cuda" and self._planner.captures(plan):
            largest = most_tokens(self._planner.s_per_token, launching_s(self._assembly.shape))
            self._graphs = StepGraphs(self._step, self._may_hold, largest, self._parts.store.settle)

    @property
    def assembly(self) -> Assembly:
        """The model's parts, with the adapters' weights as of the last `refresh`."""
        return self._assembly

    @property
    def plan_bytes(self) -> int:
        """Expected peak of the memory that PyTorch allocates."""
        return self.plan.peak_bytes

    @property
    def report(self) -> list[str]:
        """What runs fused, what doesn't and why; then how activations are kept."""
        sentences = [*self._assembly.report, *self._fp8_report, describe(self.plan.policies)]
        if self.plan.by_layer:
            sentences.append(Message("Each layer is updated as soon as its gradients are known. They are not clipped."))
        elif self._assembly.gradients:
            sentences.append(Message("The gradients of all layers are held until the update."))
        if self.plan.capacity_tokens < self._wanted_tokens:
            sentences.append(
                Message(
                    "At most {num_tokens:,} tokens pass through the model at once.",
                    num_tokens=self.plan.capacity_tokens,
                )
            )
        if self.plan.embedding_on_host:
            sentences.append(Message("The embedding is kept in system memory."))
        if self.balances:
            sentences.append(BALANCED)
        return [*sentences, *self._assembly.places.experts.report]

    @property
    def notes(self) -> list[str]:
        """What is not fused and why, and what was wished for in vain."""
        return [*self._assembly.notes, *self._fp8_notes]

    def fixed_sizes(self, examples: Sequence[Example]) -> dict[str, int]:
        """Return to which sizes `make_packed_batch` shall fill up a batch of rows; none where graphs don't pay."""
        lengths = [len(example.input_ids) for example in examples]
        if self._graphs is None or sum(lengths) > self._graphs.most_tokens:
            return {}
        num_trained = sum(example.num_trained_tokens for example in examples)
        return fixed_sizes(lengths, num_trained, self.plan.capacity_tokens)

    def _may_hold(self, batch: PackedBatch) -> bool:
        """Return whether every attention allows it that a graph of a batch serves others of the same sizes."""
        like = batch.input_ids.new_empty(batch.num_tokens, 0, dtype=self._assembly.compute.dtype)
        mixers = [layer.attention for layer in self._layers if layer.attention]
        return all(mixer.may_be_captured(batch.documents, like) for mixer in mixers)

    def resize(self, capacity_tokens: int) -> None:
        """Make room for micro-batches of another size, with activations kept as before."""
        self._wanted_tokens = capacity_tokens
        self._change(self._planner.resized(self.plan, capacity_tokens))

    @contextlib.contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """Give back the memory of activations for a while."""
        plan = self.plan
        self._change(small_plan(plan))
        try:
            yield
        finally:
            self._change(plan)

    def step_down(self) -> str | None:
        """Take less memory; return what changed as a sentence, or None when nothing is left to give."""
        plan = self._planner.step_down(self.plan)
        if plan is None:
            return None
        more_experts = plan.experts_on_host > self.plan.experts_on_host
        self._change(plan)
        said = self._assembly.places.experts.report if more_experts else []
        return (said or [describe(self.plan.policies)])[0]

    def refresh(self) -> None:
        """Take over the adapters' weights after an update."""
        self._assembly.scratch.forget()
        self._num_refreshes += 1
        if self._graphs is None or self._num_refreshes == 1:
            self._assembly.refresh()
            return
        if self._refresh_graph is None:
            self._refresh_graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._refresh_graph):
                self._assembly.refresh()
        self._refresh_graph.replay()

    def detach(self) -> None:
        """Leave the transformers model with weights of its own."""
        self._assembly.release()

    # Losses

    def loss_and_gradients(
        self, batch: PackedBatch, num_trained_tokens: int, loss_scale: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Add a micro-batch's gradients to the arena.

        Args:
            batch: at most `capacity_tokens` tokens.
            num_trained_tokens: of the whole step: the loss is the sum of cross-entropies over this number.
            loss_scale: factor of the gradients, a float32 scalar on the device (float16 needs one).

        Returns:
            The micro-batch's share of the step's loss, a float32 scalar on the device, not scaled.
        """
        with torch.no_grad():
            scale = torch.full((), 1.0 / num_trained_tokens, device=batch.input_ids.device)
            if loss_scale is not None:
                scale *= loss_scale
            run = self._step if self._graphs is None else self._graphs.run
            with self._dropping():
                return run(batch, scale) / num_trained_tokens

    def _dropping(self) -> AbstractContextManager[None]:
        """Draw the masks of a micro-batch, unless the model is in evaluation mode, and let them count meanwhile."""
        masks, training = self._assembly.masks, bool(self._model.training)
        if training and masks.exist:
            masks.draw()
        return masks.dropping(training)

    def loss(self, batch: PackedBatch, with_adapter: bool = True) -> torch.Tensor:
        """Return the sum of a micro-batch's cross-entropies in nats, a float32 scalar on the device."""
        return self.losses(batch, with_adapter).sum()

    def losses(self, batch: PackedBatch, with_adapter: bool = True) -> torch.Tensor:
        """Return the cross-entropies of a micro-batch's trained tokens in nats, float32 [R] on the device.

        Where the batch has soft targets, these are divergences from them, as in all that computes losses here.

        Args:
            batch: at most `capacity_tokens` tokens.
            with_adapter: False for the model as it was before the run.
        """
        start = None if with_adapter else start_of(self._model)
        if start is not None:
            return self._losses_with(batch, start)
        base_model_only = contextlib.nullcontext() if with_adapter else self._model.disable_adapter()
        with torch.no_grad(), base_model_only, self._assembly.tables.in_place(with_adapter):
            self._assembly.scratch.forget()
            now = self._pass(batch, with_adapter, False)
            x, pending = self._forward(now)
            return self._losses(x, pending, batch, None, None, with_adapter)

    @property
    def balances(self) -> bool:
        """Whether the loss of a micro-batch includes a term for an even use of the experts."""
        return self._assembly.balance is not None

    def balance(self, batch: PackedBatch) -> torch.Tensor | float:
        """Return that term for the micro-batch that passed through last, times its trained tokens."""
        balance = self._assembly.balance
        return balance.loss * _num_trained(batch) if balance else 0.0

    def reference_losses(self, batch: PackedBatch) -> torch.Tensor:
        """Return the same by the model with which an objective compares."""
        reference = reference_of(self._model)
        return self.losses(batch, False) if reference is None else self._losses_with(batch, reference)

    def _losses_with(self, batch: PackedBatch, weights: Weights) -> torch.Tensor:
        with self._assembly.asked_with(self._model, weights):
            return self.losses(batch)

    def objective_and_gradients(
        self,
        batch: PackedBatch,
        objective: Callable[[torch.Tensor], torch.Tensor],
        loss_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Add the gradients of an objective that is a function of the log-probabilities of tokens to the arena.

        The slope of the objective by the log-probability of a token is the weight of that token in the cross-entropy,
        so the logits are computed twice: once for the log-probabilities, once for their gradient.

        Args:
            batch: at most `capacity_tokens` tokens.
            objective: gets the log-probabilities of the trained tokens, float32 [R]; returns the objective and further
                numbers.
            loss_scale: factor of the gradients, a float32 scalar on the device (float16 needs one).

        Returns:
            What the objective returned.
        """
        with torch.no_grad(), self._dropping(), self._assembly.tables.in_place(True):
            self._assembly.scratch.forget()
            now = self._pass(batch, True, True)
            x, pending = self._forward(now)
            log_probabilities = -self._losses(x, pending, batch, None, None)
            with torch.enable_grad():
                log_probabilities.requires_grad_()
                values = objective(log_probabilities)
                (slopes,) = torch.autograd.grad(values[0], log_probabilities)
            self._backward(x, pending, now, -slopes if loss_scale is None else -slopes * loss_scale)
            return values.detach()

    def _losses(
        self,
        x: torch.Tensor,
        pending: torch.Tensor | None,
        batch: PackedBatch,
        gradient_scale: torch.Tensor | None,
        gradient: torch.Tensor | None,
        with_adapter: bool = True,
    ) -> torch.Tensor:
        rows, targets = batch.trained_rows, batch.targets
        return self._parts.head.losses(
            *(x, pending, self._last_scale, rows, targets, gradient_scale, gradient, with_adapter, self.temperature),
            batch.soft,
        )

    def _step(self, batch: PackedBatch, scale: torch.Tensor) -> torch.Tensor:
        """Go forward and backward; everything stays on the device."""
        self._assembly.scratch.forget()
        now = self._pass(batch, True, True)
        balance = self._assembly.balance
        with self._assembly.tables.in_place(True):
            x, pending = self._forward(now)
            added = self.balance(batch)
            if balance:
                balance.use(scale * _num_trained(batch))
            return self._backward(x, pending, now, scale).sum() + added

    def _backward(self, x: torch.Tensor, pending: torch.Tensor | None, now: Pass, scale: torch.Tensor) -> torch.Tensor:
        """Go through head and layers backward; return the losses of the trained rows."""
        width = self._assembly.gradient_width
        (gradient,) = self._parts.workspace.carve("gradient", (now.batch.num_tokens, width))
        shape, gradients = self._assembly.shape, self._assembly.gradients
        stream = gradient[:, : shape.hidden_size]
        losses = self._losses(x, pending, now.batch, scale, stream)
        if self._parts.altup:
            self._parts.altup.end_backward(stream)
        if gradients:
            gradients.done_with_ends()
        lowest, needs_input = self._assembly.lowest_trained
        if self.plan.host_bytes:
            # What was sent out is fetched again layer by layer.
            lowest = 0
        for layer in reversed(self._layers[lowest:]):
            layer.backward(gradient, now, first=layer.index == lowest and not needs_input)
            if gradients:
                gradients.done_with_layer(layer.index)
        if self._parts.altup:
            self._parts.altup.begin_backward(stream)
        if self._parts.per_layer:
            self._parts.per_layer.backward(stream)
        if shape.embedding_norm and needs_input:
            self._embedding_norm_backward(shape.embedding_norm, stream, now)
        if gradients:
            gradients.add_embedding(shape.embedding, now.batch.input_ids, stream, shape.embedding_scale)
            if shape.positions and shape.positions.trained is not None:
                places = now.batch.positions + shape.positions.offset
                gradients.add_embedding(shape.positions.embedding, places, stream, 1.0)
            gradients.done()
        for table in self._assembly.token_tables:
            table.backward(now.batch.input_ids, stream)
        self._assembly.tables.add_to_embedding(now.batch.input_ids, stream, shape.embedding_scale)
        return losses

    def _embed(self, x: torch.Tensor, now: Pass) -> None:
        """Write what the embedding gives, with positions and noise, [T, hidden]."""
        shape = self._assembly.shape
        if self._assembly.handing and shape.begins_as_written:
            x.copy_(self._assembly.handing.start(now.batch.documents))
        else:
            embed(now.batch.input_ids, self._assembly.tables.table(now.with_adapter), shape.embedding_scale, x)
        for table in self._assembly.token_tables:
            table.embed(now.batch.input_ids, x)
        if shape.positions:
            (added,) = self._parts.workspace.carve("input", (len(x), shape.hidden_size))
            add_positions(shape.positions, now.batch.positions, x, added)
        if self._noise and self._assembly.masks.active:
            self._noise.add(now.batch, self._assembly.masks, x)

    def _embedding_norm_backward(self, norm: Norm, stream: torch.Tensor, now: Pass) -> None:
        """Turn the gradient of what the first layer reads into that of the embedded tokens, where it is."""
        workspace, width = self._parts.workspace, self._assembly.gradient_width
        wide = [workspace.carve(name, (len(stream), width))[0] for name in ("output", "input")]
        x, normed = (part[:, : stream.shape[1]] for part in wide)
        self._embed(x, now)
        statistics = rms_norm.add_norm(x, None, norm, normed)
        if self._assembly.gradients:
            self._assembly.gradients.add_norm(norm, stream, x, statistics)
        rms_norm.norm_backward(stream, x, norm, statistics, stream)

    def _forward(self, now: Pass) -> tuple[torch.Tensor, torch.Tensor | None]:
        shape = self._assembly.shape
        num_tokens = now.batch.num_tokens
        (embedded,) = self._parts.workspace.carve("output", (num_tokens, self._assembly.gradient_width))
        x: torch.Tensor = embedded[:, : shape.hidden_size]
        self._embed(x, now)
        if shape.embedding_norm:
            rms_norm.add_norm(x, None, shape.embedding_norm, x)
        if self._parts.per_layer:
            self._parts.per_layer.forward(now.batch.input_ids, embedded, now.with_adapter)
        if self._assembly.balance:
            self._assembly.balance.begin(x.device)
        altup, pending = self._parts.altup, None
        if altup:
            x = altup.begin(x, now.with_adapter)
        for layer in self._layers:
            x, pending = layer.forward(x, pending, now)
        return (altup.end(embedded[:, : shape.hidden_size], now.with_adapter), None) if altup else (x, pending)

    def _pass(self, batch: PackedBatch, with_adapter: bool, with_gradients: bool) -> Pass:
        if batch.num_tokens > self.plan.capacity_tokens:
            room = self.plan.capacity_tokens
            raise TunesmithError(
                "bug",
                "{num_tokens} tokens don't fit into buffers for {capacity_tokens}.",
                num_tokens=batch.num_tokens,
                capacity_tokens=room,
            )
        store, workspace = self._parts.store, self._parts.workspace
        if placeholders := self._assembly.shape.placeholders:
            batch = replace(batch, input_ids=placeholders.read(batch.input_ids))
        if handing := self._assembly.handing:
            handing.begin(batch, self._assembly.compute.dtype, self.plan.tiling.mlp_tokens)
        return Pass(batch, self._rotary(batch), store, workspace, with_adapter, with_gradients)

    def _rotary(self, batch: PackedBatch) -> dict[str, Rotary]:
        """Return the rotary tables of a batch by kind of layer."""
        shape = self._assembly.shape
        if shape.rotary is None:
            return {layer.rotary_kind: Rotary(None, None, batch.positions) for layer in shape.layers}
        like = torch.empty(0, device=batch.input_ids.device, dtype=self._assembly.compute.dtype)
        tables = {layer.rotary_kind: Rotary(None, None, batch.positions) for layer in shape.layers}
        for kind in shape.rotary_kinds:
            cos, sin = shape.rotary(like, batch.positions[None], kind)
            tables[kind] = Rotary(cos[0], sin[0], batch.positions)
        return tables

    @property
    def _layers(self) -> Sequence[FusedLayer | PlainLayer | AltUpLayer]:
        return self._parts.layers

    @property
    def _last_scale(self) -> float:
        return self._assembly.shape.layers[-1].residual_scale


def _num_trained(batch: PackedBatch) -> torch.Tensor:
    """Return how many tokens of a micro-batch are trained; others fill up a fixed size."""
    return (batch.targets >= 0).sum()
