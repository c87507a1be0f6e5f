"""The linear layers of one decoder layer, by what they are for."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection


@dataclass(frozen=True, slots=True)
class LayerProjections:
    """The linear layers of a decoder layer, in the order in which they run.

    The first one of a block is None where the other block is the whole layer, or for experts without a shared MLP; the
    second also where the first is the block.

    Attributes:
        experts: those of a mixture; its shared MLP has the place of the MLP.
        per_layer_gate, per_layer_output: of a third block.
        query_expansion, expansion: of latents; those of output gates and of decays for the channel-wise delta rule.
        scan_inputs, scan_output: of a scan beside attention.
        laurel_left, laurel_right: of a branch beside it.
        predicting, correcting: what weighs several streams.
    """

    attention_inputs: Projection | PlainModules | None
    attention_output: Projection | PlainModules | None
    mlp_inputs: Projection | PlainModules | None
    mlp_down: Projection | PlainModules | None
    experts: Experts | None = None
    per_layer_gate: Projection | PlainModules | None = None
    per_layer_output: Projection | PlainModules | None = None
    query_expansion: Projection | PlainModules | None = None
    expansion: Projection | PlainModules | None = None
    scan_inputs: Projection | PlainModules | None = None
    scan_output: Projection | PlainModules | None = None
    laurel_left: Projection | PlainModules | None = None
    laurel_right: Projection | PlainModules | None = None
    predicting: PlainModules | None = None
    correcting: PlainModules | None = None

    def all(self) -> list[Projection | PlainModules]:
        """Return those that there are, the experts left out."""
        return [*self.for_whole_rows(), *self.for_tiles()]

    def for_whole_rows(self) -> list[Projection | PlainModules]:
        """Return those that take all rows of a micro-batch at once."""
        parts = self.attention_inputs, self.attention_output, self.per_layer_gate, self.per_layer_output
        others = self.query_expansion, self.expansion, self.scan_inputs, self.scan_output
        beside = self.laurel_left, self.laurel_right, self.predicting, self.correcting
        return [part for part in (*parts, *others, *beside) if part is not None]

    def for_tiles(self) -> list[Projection | PlainModules]:
        """Return those that take a tile of rows after the other."""
        return [part for part in (self.mlp_inputs, self.mlp_down) if part is not None]

    def quantised_bytes(self, num_tokens: int, tile_tokens: int) -> int:
        """Return what a product takes for 8-bit copies of its input, at most."""
        whole = max(map(_quantised_bytes_per_row, self.for_whole_rows()), default=0)
        tiles = max(map(_quantised_bytes_per_row, self.for_tiles()), default=0)
        return max(num_tokens * whole, min(num_tokens, tile_tokens) * tiles)


def _quantised_bytes_per_row(part: Projection | PlainModules) -> int:
    return part.quantised_bytes_per_row if isinstance(part, Projection) else 0
