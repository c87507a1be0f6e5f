"""Puts the parts of a fused model together: projections once, layers and buffers for each plan of the memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from peft import PeftModel
from torch import nn

from tunesmith_core.kernel_words import FUSED, NOT_FUSED
from tunesmith_core.messages import Message
from tunesmith_engine.device import Compute
from tunesmith_engine.fused.activations import ActivationStore
from tunesmith_engine.fused.altup_block import AltUpBlock, coefficients_of
from tunesmith_engine.fused.altup_ends import AltUpEnds
from tunesmith_engine.fused.altup_layer import AltUpLayer
from tunesmith_engine.fused.arena import AdapterArena
from tunesmith_engine.fused.balance import Balance
from tunesmith_engine.fused.branched_block import BranchedBlock
from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.head import Head
from tunesmith_engine.fused.laurel_block import LaurelBlock
from tunesmith_engine.fused.layer import FusedLayer, Mixer
from tunesmith_engine.fused.layer_projections import LayerProjections
from tunesmith_engine.fused.masks import Masks
from tunesmith_engine.fused.mixer_blocks import loan_of, mixer_block
from tunesmith_engine.fused.mlp_block import MlpBlock, PlainMlp
from tunesmith_engine.fused.per_layer_block import PerLayerBlock, PerLayerTable
from tunesmith_engine.fused.places import Places
from tunesmith_engine.fused.plain_documents import PlainDocuments
from tunesmith_engine.fused.plain_layer import PlainLayer
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.policy import LayerPolicy
from tunesmith_engine.fused.projection import Member, PlainOnlyError, Projection, WeightScratch
from tunesmith_engine.fused.recognise import base_model
from tunesmith_engine.fused.recognise.handed import Handing
from tunesmith_engine.fused.recognise.sparse import written
from tunesmith_engine.fused.routing import Router
from tunesmith_engine.fused.sparse_block import SparseBlock
from tunesmith_engine.fused.tables import Tables
from tunesmith_engine.fused.tiling import Tiling
from tunesmith_engine.fused.token_tables import TokenTable
from tunesmith_engine.fused.trained_projection import TrainedProjection
from tunesmith_engine.fused.weight_gradients import Bundle, Group, WeightGradients, bundles_of_norms
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.mixer_shapes import (
    AttentionShape,
    Branch,
    ChannelDeltaShape,
    LatentShape,
    MixerShape,
    ParallelShape,
    branches_of,
)
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.model.other_weights import Weights, asked_with
from tunesmith_engine.shapes import (
    LayerShape,
    MlpShape,
    ModelShape,
    NotFusableError,
    SparseShape,
    Unfused,
    UnfusedLayer,
)

TRIED_TOKENS = 16
"""With which routers show what they do; how many does not matter."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a plan of the memory decides about."""

    layers: Sequence[FusedLayer | PlainLayer | AltUpLayer]
    head: Head
    workspace: Workspace
    store: ActivationStore
    per_layer: PerLayerTable | None = None
    altup: AltUpEnds | None = None


class Assembly:
    """The parts of a fused model that stay while its plan changes.

    Attributes:
        projections: of each layer.
        gradients: those of whole weights; None where an adapter is trained.
        gradient_width: columns of buffers as wide as the residual stream, with room for adapter columns.
        tables: the embedding and the output layer, with and without what was trained of them.
        token_tables: what embeds some tokens in its place.
        places: what lies in the computer's memory.
    """

    def __init__(self, model: PeftModel, shape: ModelShape, compute: Compute) -> None:
        self.shape, self.compute = shape, compute
        self._trained, self._is_full = trainable(model), isinstance(model, FullModel)
        self.gradients: WeightGradients | None = None
        self.scratch = WeightScratch(compute.device, compute.dtype)
        self.masks = Masks(compute.device)
        self.balance = Balance(shape.balance) if shape.balance else None
        self._unfused: dict[str, list[Message]] = {}
        # First: where it is refused, no weight has moved yet.
        head = self._projection((shape.head,), 0, "", Message("The output projection"))
        if isinstance(head, PlainModules):
            raise NotFusableError(
                "The output projection can't be computed in chunks. {reason}", reason=self._unfused[""][0]
            )
        if head.has_magnitudes:
            raise NotFusableError("DoRA of the output projection runs in plain PyTorch.")
        self.head = head
        self.tables = Tables(base_model(model), shape.embedding, head, self.scratch, compute.dtype)
        self.token_tables = [TokenTable(table, self._autocast) for table in shape.other_tables]
        self._per_layer: Projection | None = None
        if shape.per_layer:
            (self._per_layer,) = self._before_layers([shape.per_layer.projection], Message("The per-layer inputs"))
        self._altup: tuple[list[Projection], list[Projection]] | None = None
        if shape.altup:
            ends, what = shape.altup, Message("The projections of streams")
            self._altup = self._before_layers(ends.projections, what), self._before_layers(ends.back, what)
        self.use([self._layer_projections(index, layer) for index, layer in enumerate(shape.layers)])
        self.places = Places(model, shape.embedding, compute.device, self._embedding_stays)
        if self._is_full:
            self.gradients = self._weight_gradients(head)

    def _before_layers(self, modules: Sequence[nn.Module], what: str) -> list[Projection]:
        """Return a projection of each module, without which no layer runs.

        Raises:
            NotFusableError: one of them runs as it was written.
        """
        found = [self._projection((module,), 0, "", what) for module in modules]
        projections = [part for part in found if isinstance(part, Projection)]
        if len(projections) < len(found):
            raise NotFusableError("The model needs plain PyTorch. {reason}", reason=self._unfused[""][0])
        return projections

    def use(self, projections: list[LayerProjections]) -> None:
        """Let the layers that are built from now on multiply with these."""
        self.projections = projections
        # Adapter columns stand beside the stream in whichever block has most of them.
        most = max(part.num_extra for part in self._of_body)
        self.gradient_width = self.shape.hidden_size + most

    @property
    def _of_body(self) -> list[Projection | PlainModules]:
        """All linear layers below the head."""
        before = [self._per_layer] if self._per_layer else []
        ends = [part for side in self._altup or () for part in side]
        return [*before, *ends, *(part for parts in self.projections for part in parts.all())]

    def _weight_gradients(self, head: Projection) -> WeightGradients | None:
        """Return where the gradients of trained weights are added up; None where nothing is trained."""
        embedding, tied = self.shape.embedding.weight, self._is_tied
        ends = [*bundles_of_norms([self.shape.final_norm]), *_bundles(head)]
        layers = []
        for shape, parts in zip(self.shape.layers, self.projections, strict=True):
            bundles = [bundle for part in parts.all() for bundle in _bundles(part)]
            plain = [module for part in parts.all() if isinstance(part, PlainModules) for module in part.modules]
            others = [weight for module in plain for weight in module.parameters() if weight.requires_grad]
            trained = shape.attention.trained_sinks if isinstance(shape.attention, AttentionShape) else None
            sinks = [] if trained is None else [(trained,)]
            layers.append(Group([*bundles, *bundles_of_norms(shape.norms), *sinks], others))
        group = Group([bundle for bundle in ends if not (tied and bundle[0] is embedding)])
        positions = self.shape.positions.trained if self.shape.positions else None
        tables = [embedding if embedding.requires_grad else None, positions]
        if not (any(table is not None for table in tables) or any(each.weights for each in (group, *layers))):
            return None
        norm = self.shape.embedding_norm
        of_embedded = norm.trained_parameters if norm else []
        found = WeightGradients(group, layers, tables[0], tied, self.compute.dtype, tables[1], of_embedded)
        for part in [head, *self._of_body]:
            if isinstance(part, TrainedProjection):
                part.gradients = found
        return found

    @property
    def _is_tied(self) -> bool:
        return any(member.base.weight is self.shape.embedding.weight for member in self.head.members)

    @property
    def _embedding_stays(self) -> bool:
        """Whether the input embedding is needed on the device: the head, or who trains it, uses it too."""
        stays = self._is_tied or self.shape.embedding.weight.requires_grad or not self.tables.may_leave
        return stays or (self.handing is not None and self.handing.uses_embedding)

    @property
    def _embeds(self) -> bool:
        """Whether anything is trained that the embedded tokens depend on."""
        return self.tables.trains_embedding or any(table.is_trained for table in self.token_tables)

    @cached_property
    def lowest_trained(self) -> tuple[int, bool]:
        """The lowest layer that the backward pass must reach, and whether it needs the gradient of that one's input."""
        if self.gradients is None:
            trains_streams = self._altup is not None and any(part.num_ranks for part in self._altup[0])
            return 0, self._embeds or trains_streams
        positions = self.shape.positions
        norm = self.shape.embedding_norm
        if norm and norm.trained_parameters:
            return 0, True
        if self.shape.embedding.weight.requires_grad or (positions and positions.trained is not None):
            return 0, True
        index = next((index for index, group in enumerate(self.gradients.layers) if group.weights), 0)
        norm = self.shape.layers[index].input_norm
        return index, norm is not None and bool(norm.trained_parameters)

    @cached_property
    def arena(self) -> AdapterArena:
        """Weights and gradients of the trained parameters, which lie there from the first call on."""
        return AdapterArena(self._trained)

    @cached_property
    def capturable(self) -> bool:
        """Whether a step may be captured in a CUDA graph where all experts lie on the device."""
        # Whole weights make steps so large that launches take no time beside them.
        if self._is_full or self.token_tables or any(isinstance(part, PlainModules) for part in self._of_body):
            return False
        mixtures = [layer.mlp for layer in self.shape.layers if isinstance(layer.mlp, SparseShape)]
        if mixtures and self.balance:
            # It would count what fills up a batch.
            return False
        x = torch.zeros(TRIED_TOKENS, self.shape.hidden_size, device=self.compute.device, dtype=self.compute.dtype)
        return all(self.router_of(mlp, False).may_be_captured(x) for mlp in mixtures)

    @property
    def num_packed_weights(self) -> int:
        """Weights of the layers that are packed in 4 bits."""
        parts = (part for part in self._of_body if isinstance(part, Projection))
        members = (member for part in parts for member in part.members)
        return sum(m.num_inputs * m.num_outputs for m in members if not isinstance(m.weight, torch.Tensor))

    def quantised_bytes(self, num_tokens: int, tile_tokens: int) -> int:
        """Return what a product takes for 8-bit copies of its input, at most."""
        return max((parts.quantised_bytes(num_tokens, tile_tokens) for parts in self.projections), default=0)

    def _layer_projections(self, index: int, layer: LayerShape | UnfusedLayer) -> LayerProjections:
        attention, mlp = layer.attention, layer.mlp
        hidden = self.shape.hidden_size
        inputs: Projection | PlainModules | None = None
        output: Projection | PlainModules | None = None
        gate_up: Projection | PlainModules | None = None
        down: Projection | PlainModules | None = None
        if isinstance(attention, Unfused):
            what = Message("Attention") if isinstance(layer, LayerShape) else Message("The whole layer")
            self._note_unfused(layer.name, what, attention.reason)
            inputs = self._as_written(index, attention.module)
        elif attention is not None:
            inputs, output = self._around_mixer(layer.name, branches_of(attention)[0])
        scan: tuple[Projection | PlainModules | None, Projection | PlainModules | None] = (None, None)
        if isinstance(attention, ParallelShape):
            scan = self._around_mixer(layer.name, attention.scan)
        expansions = self._expansions(layer.name, attention)
        experts = self._experts(layer.name, mlp) if isinstance(mlp, SparseShape) else None
        if isinstance(mlp, MlpShape):
            gate_up, down = self._mlp_projections(layer.name, mlp)
        elif experts and isinstance(mlp, SparseShape):
            gate_up, down = self._shared_projections(layer.name, mlp)
        elif mlp is not None:
            if isinstance(mlp, Unfused):
                self._note_unfused(layer.name, Message("The MLP"), mlp.reason)
            module = written(mlp) if isinstance(mlp, SparseShape) else mlp.module
            gate_up = PlainModules((module,), hidden, hidden, self._autocast)
        third, laurel = layer.per_layer, layer.laurel
        block = self._pair(layer.name, (third.gate, third.output) if third else None, Message("The per-layer block"))
        branch = self._pair(layer.name, (laurel.left, laurel.right) if laurel else None, Message("Laurel"))
        weighing = coefficients_of(layer.altup, hidden, self._autocast) if layer.altup else (None, None)
        if self.compute.device.type == "cuda":
            # Weights have moved into wider buffers; what they left must serve the next layer's.
            torch.cuda.empty_cache()
        return LayerProjections(
            inputs, output, gate_up, down, experts, *block, *expansions, *scan, *branch, *weighing
        )

    def _expansions(
        self, layer: str, attention: MixerShape | Unfused | None
    ) -> tuple[Projection | PlainModules | None, Projection | PlainModules | None]:
        """Return those of latents, or of output gates and decays; None for none."""
        if not isinstance(attention, LatentShape | ChannelDeltaShape):
            return None, None
        what = Message("Attention's expansions")
        first, second = (
            None if part is None else self._projection((part,), 1 - place, layer, what)
            for place, part in enumerate(attention.expansions)
        )
        return first, second

    def _pair(
        self, layer: str, modules: tuple[nn.Module, nn.Module] | None, what: str
    ) -> tuple[Projection | PlainModules | None, Projection | PlainModules | None]:
        """Return the projections of two linear layers that run one after the other; None for none."""
        if modules is None:
            return None, None
        first, second = (self._projection((module,), place, layer, what) for place, module in enumerate(modules))
        return first, second

    def _around_mixer(
        self, layer: str, mixer: Branch
    ) -> tuple[Projection | PlainModules, Projection | PlainModules]:
        return (
            self._projection(mixer.inputs, 0, layer, Message("Attention's inputs")),
            self._projection((mixer.output,), 1, layer, Message("Attention's output")),
        )

    @property
    def handing(self) -> Handing | None:
        """What calls modules that run as written; None where all is fused."""
        handing = self.shape.handing
        return handing if isinstance(handing, Handing) else None

    def _as_written(self, index: int, module: nn.Module) -> PlainDocuments:
        if self.handing is None:
            raise TypeError("Nobody calls what runs as written.")
        return PlainDocuments(module, index, self.handing, self.shape.hidden_size, self._autocast)

    def _mlp_projections(
        self, layer: str, mlp: MlpShape
    ) -> tuple[Projection | PlainModules, Projection | PlainModules]:
        gate_up = self._projection(mlp.inputs, 0, layer, Message("The MLP's inputs"))
        return gate_up, self._projection((mlp.down,), 1, layer, Message("The MLP's output"))

    def _experts(self, layer: str, mlp: SparseShape) -> Experts | None:
        """Return the experts of a layer; None where only the module itself can compute them."""
        try:
            return Experts(mlp, self.scratch, self.compute.dtype, all_frozen=not self._is_full)
        except PlainOnlyError as reason:
            if self.balance:
                # Who counts them runs beside them.
                raise NotFusableError(
                    "The loss includes a term that balances the experts (output_router_logits)."
                ) from reason
            self._note_unfused(layer, Message("The experts"), reason.message)
            return None

    def _shared_projections(
        self, layer: str, mlp: SparseShape
    ) -> tuple[Projection | PlainModules | None, Projection | PlainModules | None]:
        """Return the linear layers of the MLP that all tokens go through, or its module, or nothing."""
        if mlp.shared_module is None:
            return None, None
        if mlp.shared is not None:
            gate_up, down = self._mlp_projections(layer, mlp.shared)
            if mlp.branch_norms or not (gate_up.has_magnitudes or down.has_magnitudes):
                return gate_up, down
            self._note_unfused(layer, Message("The shared MLP"), Message("DoRA runs in plain PyTorch."))
        elif mlp.unfused_shared:
            self._note_unfused(layer, Message("The shared MLP"), mlp.unfused_shared)
        hidden = self.shape.hidden_size
        return PlainModules((mlp.shared_module,), hidden, hidden, self._autocast), None

    @property
    def _autocast(self) -> torch.dtype | None:
        return None if self.compute.dtype == torch.float32 else self.compute.dtype

    def _projection(self, modules: Sequence[nn.Module], place: int, layer: str, what: str) -> Projection | PlainModules:
        try:
            members = [Member.of(module) for module in modules]
            if self._is_full:
                return TrainedProjection(members, self.scratch, place, self.compute.dtype)
            return Projection(members, self.scratch, place, self.compute.dtype, self.masks)
        except PlainOnlyError as reason:
            self._note_unfused(layer, what, reason.message)
        bases = [module.base_layer if hasattr(module, "base_layer") else module for module in modules]
        return PlainModules(modules, bases[0].in_features, sum(base.out_features for base in bases), self._autocast)

    def _note_unfused(self, layer: str, what: str, reason: str) -> None:
        self._unfused.setdefault(layer, []).append(Message("{what}: {reason}", what=what, reason=reason))

    @property
    def report(self) -> list[str]:
        """Sentences about what is fused and what is not, one for each thing that happens in several layers alike."""
        num_layers = len(self.shape.layers)
        num_fused = num_layers - len(self._unfused)
        fused = Message(FUSED.template, num_fused=num_fused, num_layers=num_layers)
        return [fused, *self.notes]

    @property
    def notes(self) -> list[str]:
        """Sentences about what is not fused."""
        num_layers = len(self.shape.layers)
        alike = Counter(note for notes in self._unfused.values() for note in dict.fromkeys(notes))
        sentences = [
            Message(NOT_FUSED.template, num_unfused=count, num_layers=num_layers, note=note)
            for note, count in alike.items()
        ]
        return [*sentences, *self.shape.notes]

    def refresh(self) -> None:
        """Take over the adapters' present weights."""
        self.scratch.forget()
        self.tables.refresh()
        for part in [self.head, *self._of_body]:
            if isinstance(part, Projection):
                part.refresh()
        for parts in self.projections:
            if parts.experts:
                parts.experts.refresh()

    @contextlib.contextmanager
    def asked_with(self, model: PeftModel, weights: Weights) -> Iterator[None]:
        """Make the context in which the model and all products have other weights of the adapter."""
        try:
            with asked_with(model, weights), torch.no_grad():
                self.refresh()
                yield
        finally:
            with torch.no_grad():
                self.refresh()

    def release(self) -> None:
        """Give the modules weights of their own again."""
        self.places.bring_back()
        for part in [self.head, *self._of_body]:
            if isinstance(part, Projection):
                part.release()

    # What a plan decides about

    def build(self, policies: Sequence[LayerPolicy], capacity_tokens: int, tiling: Tiling) -> Parts:
        """Return layers and buffers; the workspace is allocated when it is first used.

        Raises:
            PinningError: this machine gives no pinned memory for layers that are sent out.
        """
        workspace = self.workspace(capacity_tokens)
        layers = self.layers(policies, workspace, capacity_tokens, tiling)
        head = self.head_of(workspace, capacity_tokens, tiling)
        buffers = [
            layer.buffers(policy.level == "none", self.compute.dtype)
            for layer, policy in zip(layers, policies, strict=True)
        ]
        if self.compute.device.type == "cuda":
            # The store is one large piece; pieces that are free now must not stand beside it.
            torch.cuda.empty_cache()
        tile_tokens = min(tiling.mlp_tokens, capacity_tokens)
        store = ActivationStore(buffers, policies, capacity_tokens, self.compute.device, tile_tokens=tile_tokens)
        before = self.per_layer_of(workspace, capacity_tokens), self.altup_of(workspace, capacity_tokens)
        return Parts(layers, head, workspace, store, *before)

    def head_of(self, workspace: Workspace, capacity_tokens: int, tiling: Tiling) -> Head:
        """Return the end of the model, which reserves what it needs in the workspace."""
        return Head(self.shape, self.tables, workspace, min(capacity_tokens, tiling.head_rows), self.gradients)

    def workspace(self, capacity_tokens: int) -> Workspace:
        """Return an empty workspace with the regions that every layer uses."""
        workspace = Workspace(self.compute.device, self.compute.dtype)
        for region in ("input", "output", "gradient"):
            workspace.reserve(region, (capacity_tokens, self.gradient_width))
        if any(layer.parallel for layer in self.shape.layers):
            workspace.reserve("parallel", (capacity_tokens, self.shape.hidden_size))
        return workspace

    def layers(
        self,
        policies: Sequence[LayerPolicy],
        workspace: Workspace,
        capacity_tokens: int,
        tiling: Tiling,
        for_answers: bool = False,
    ) -> list[FusedLayer | PlainLayer | AltUpLayer]:
        """Return the layers, which reserve what they need in the workspace; see `router_of` for the last argument."""
        layers: list[FusedLayer | PlainLayer | AltUpLayer] = []
        tile_tokens = min(tiling.mlp_tokens, capacity_tokens)
        for index, (shape, parts, policy) in enumerate(zip(self.shape.layers, self.projections, policies, strict=True)):
            hidden = self.shape.hidden_size
            if isinstance(shape, UnfusedLayer):
                if not isinstance(parts.attention_inputs, PlainDocuments):
                    raise TypeError(f"{shape.name} has nothing that can be run.")
                layers.append(PlainLayer(index, shape, parts.attention_inputs, hidden))
                continue
            mixer = self.mixer_of(index, shape, parts, workspace, capacity_tokens, tiling.attention_numbers)
            mlp = self._mlp(shape, parts, workspace, tile_tokens, policy.level == "none", for_answers)
            widths = hidden, self.gradient_width
            third = self.per_layer_block_of(shape, parts, workspace, capacity_tokens)
            if shape.altup and parts.predicting and parts.correcting:
                laurel = self._laurel(shape, parts, workspace, capacity_tokens)
                blocks = FusedLayer(index, shape, mixer, mlp, *widths, self.gradients, laurel=laurel)
                weighing = parts.predicting, parts.correcting
                altup = AltUpBlock(shape.altup, *weighing, workspace, capacity_tokens, hidden)
                layers.append(AltUpLayer(index, shape, blocks, altup, third, workspace, capacity_tokens, hidden))
            else:
                layers.append(FusedLayer(index, shape, mixer, mlp, *widths, self.gradients, third))
        return layers

    def _laurel(
        self, shape: LayerShape, parts: LayerProjections, workspace: Workspace, capacity_tokens: int
    ) -> LaurelBlock | None:
        left, right = parts.laurel_left, parts.laurel_right
        if shape.laurel is None or left is None or right is None:
            return None
        return LaurelBlock(shape.laurel, left, right, workspace, capacity_tokens, self.shape.hidden_size)

    def mixer_of(
        self,
        index: int,
        shape: LayerShape,
        parts: LayerProjections,
        workspace: Workspace,
        capacity_tokens: int,
        at_once: int,
    ) -> Mixer | None:
        """Return what a layer has between its first norm and the residual; see `mixer_block`."""
        loan = loan_of(index, self.shape.layers)
        return mixer_block(
            index, shape, parts, workspace, (capacity_tokens, at_once), self.shape.hidden_size, self.gradients, loan
        )

    def per_layer_of(self, workspace: Workspace, capacity_tokens: int) -> PerLayerTable | None:
        """Return what makes the own numbers of all layers, which reserves what it needs in the workspace."""
        shape, projection = self.shape.per_layer, self._per_layer
        if shape is None or projection is None:
            return None
        return PerLayerTable(shape, projection, workspace, capacity_tokens, self.shape.hidden_size, self._embeds)

    def altup_of(self, workspace: Workspace, capacity_tokens: int) -> AltUpEnds | None:
        """Return what is at the ends of several streams, which reserves what it needs in the workspace."""
        if self._altup is None:
            return None
        sizes = capacity_tokens, self.shape.hidden_size, self.gradient_width
        return AltUpEnds(*self._altup, workspace, *sizes, self._embeds)

    def per_layer_block_of(
        self, shape: LayerShape, parts: LayerProjections, workspace: Workspace, capacity_tokens: int
    ) -> PerLayerBlock | None:
        table = self.per_layer_of(workspace, capacity_tokens)
        gate, output = parts.per_layer_gate, parts.per_layer_output
        if table is None or shape.per_layer is None or gate is None or output is None:
            return None
        sizes = capacity_tokens, table.num_columns, self.shape.hidden_size
        return PerLayerBlock(shape.per_layer, gate, output, workspace, *sizes, self.gradients, table.needs_gradient)

    def router_of(self, mlp: SparseShape, for_answers: bool) -> Router:
        """Return the router of a mixture: as it trains, or as it chooses for answers, which nobody counts."""
        return Router(mlp, self._autocast, None if for_answers else self.balance, for_answers)

    def _mlp(
        self,
        shape: LayerShape,
        parts: LayerProjections,
        workspace: Workspace,
        tile_tokens: int,
        keeps_gate_up: bool,
        for_answers: bool = False,
    ) -> MlpBlock | PlainMlp | SparseBlock | None:
        """Return a layer's MLP, or its mixture of experts with the MLP beside them."""
        if shape.mlp is None:
            return None
        mlp, inputs, down = shape.mlp, parts.mlp_inputs, parts.mlp_down
        shared = mlp.shared if isinstance(mlp, SparseShape) else mlp
        block: MlpBlock | PlainMlp | None = None
        norms = mlp.branch_norms if isinstance(mlp, SparseShape) else None
        if isinstance(shared, MlpShape) and inputs is not None and down is not None:
            has_room = keeps_gate_up or norms is not None
            block = MlpBlock(shared, inputs, down, workspace, tile_tokens, has_room, self.gradients)
        elif isinstance(inputs, PlainModules):
            block = PlainMlp(inputs)
        if isinstance(mlp, SparseShape) and parts.experts is not None:
            router = self.router_of(mlp, for_answers)
            if norms and block:
                around = router, block, workspace, tile_tokens, keeps_gate_up
                return BranchedBlock(mlp, norms, parts.experts, *around)
            return SparseBlock(mlp, parts.experts, router, block, workspace, tile_tokens, keeps_gate_up)
        if block is None:
            raise TypeError(f"{shape.name} has no MLP that can be run.")
        return block


def _bundles(part: Projection | PlainModules) -> list[Bundle]:
    return part.bundles if isinstance(part, TrainedProjection) else []

