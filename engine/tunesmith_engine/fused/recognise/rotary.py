"""The model's own rotary tables, with their numbers where the rotation of its layers wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.body import first_of
from tunesmith_engine.fused.recognise.stand_ins import Constant
from tunesmith_engine.shapes import AnyModel, NotFusableError

ROTARY = ("rotary_emb", "pos_emb")
"""What transformers calls the module that makes a decoder's tables."""

BASES = "rotary_embs"
"""Modules of a decoder whose layers have several bases, one for each (Granite with windows)."""

TABLE = "embed_positions"
"""Sines and cosines that attention holds itself, side by side, [positions, rotary width] (CodeGen)."""


MODULE = "rotary_emb"
"""What makes a table, in a decoder or in each layer's attention."""

SCALING = "attention_scaling"


@dataclass(frozen=True, slots=True)
class Layout:
    """How the numbers of a rotary table lie.

    Attributes:
        width: numbers of a position, as many as are turned in each head.
        halves: each angle stands once in the first half and once in the second; else it stands twice in a row.
        is_complex: layers are handed complex numbers, one for each pair of neighbours (DeepSeek-V2, Llama 4).
        is_once: layers are handed each angle once.
    """

    width: int
    halves: bool
    is_complex: bool = False
    is_once: bool = False

    def spread(self, angles: torch.Tensor) -> torch.Tensor:
        """Lay out one number an angle, [..., width / 2], as this table does."""
        return torch.cat((angles, angles), dim=-1) if self.halves else angles.repeat_interleave(2, dim=-1)

    def handed(self, angles: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return what layers are handed for cosines and sines, [2, ..., width / 2]."""
        if self.is_complex:
            return torch.complex(angles[0], angles[1])
        cos, sin = angles if self.is_once else self.spread(angles)
        return cos, sin


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """Calls the rotary module of a decoder; see `ModelShape.rotary`.

    Attributes:
        module: gives cos and sin for numbers of a dtype and device, positions and, where it has several, a kind.
        to_pairs: a table in halves is handed on with each angle twice in a row, for layers that turn neighbours.
        is_once: the module gives each angle once (gpt-oss); it is handed on in both halves.
        backwards: layers turn by the opposite angle (NanoChat).
    """

    module: nn.Module
    to_pairs: bool = False
    is_once: bool = False
    backwards: bool = False

    def __call__(self, x: torch.Tensor, positions: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin, [1, T, width]."""
        table = self.module(x, positions, kind) if kind else self.module(x, positions)
        if isinstance(table, torch.Tensor) and table.is_complex():
            # One number for each pair of neighbours (DeepSeek-V2, Llama 4).
            table = tuple(part.repeat_interleave(2, dim=-1) for part in (table.real, table.imag))
        if not isinstance(table, tuple) or len(table) != len(("cos", "sin")):
            name = type(self.module).__name__
            raise NotFusableError("model.rotary_emb ({kind}) has an unsupported table.", kind=name)
        cos, sin = (torch.cat((part, part), dim=-1) for part in table) if self.is_once else table
        sin = -sin if self.backwards else sin
        return (in_pairs(cos), in_pairs(sin)) if self.to_pairs else (cos, sin)

    @property
    def has_kinds(self) -> bool:
        """Whether there are several tables, one a kind of layers."""
        return isinstance(getattr(self.module, "rope_type", None), dict)

    def kind(self, config: Any, index: int, layer_type: str) -> str | None:
        """Return the key of the table that a layer takes, "" where there is one only; None where it takes none.

        Args:
            config: of the decoder.
            index: of the layer.
            layer_type: by the config.
        """
        if not self.has_kinds:
            return ""
        key = str(config.layer_rope_theta[index]) if isinstance(self.module, _ByBase) else layer_type
        return key if key in self.module.rope_type else None

    def layout(self, kind: str, device: torch.device) -> Layout:
        """Return how the numbers of a table lie.

        Raises:
            NotFusableError: in no way that we know, or the table changes with the length of the text.
        """
        rope_type = self.module.rope_type[kind] if kind else getattr(self.module, "rope_type", "")
        if "dynamic" in rope_type:
            raise NotFusableError("model.rotary_emb changes its table with the length of the text (dynamic).")
        x, positions = torch.zeros(1, device=device), torch.arange(1, 5, device=device)[None]
        is_complex = isinstance(self.module(x, positions, *([kind] if kind else [])), torch.Tensor)
        cos, _ = self(x, positions, kind)
        first, second = cos.chunk(2, dim=-1)
        for halves, same in ((True, torch.equal(first, second)), (False, torch.equal(cos[..., ::2], cos[..., 1::2]))):
            if same:
                return Layout(cos.shape[-1], halves, is_complex)
        # Attention's own code must take it for one: a trial tells.
        return Layout(2 * cos.shape[-1], True, is_once=True)


class _ByBase(nn.Module):
    """Rotary modules of several bases as one with several kinds."""

    def __init__(self, modules: Sequence[AnyModel]) -> None:
        super().__init__()
        # They are the decoder's, not parts of this module.
        self.__dict__["tables"] = {str(module.config.rope_parameters["rope_theta"]): module for module in modules}
        self.rope_type = {kind: module.rope_type for kind, module in self.__dict__["tables"].items()}

    def forward(self, x: torch.Tensor, positions: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin."""
        table: tuple[torch.Tensor, torch.Tensor] = self.__dict__["tables"][kind](x, positions)
        return table


class _HeldTable(nn.Module):
    """Sines and cosines that attention holds for every position, [positions, rotary width], as a rotary module."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin with each angle twice in a row."""
        self.table = self.table.to(x.device)
        sin, cos = self.table[positions].repeat_interleave(2, dim=-1).to(x.dtype).chunk(2, dim=-1)
        return cos, sin


def rotary_tables(decoder: AnyModel, attentions: Sequence[nn.Module]) -> RotaryTables | None:
    """Return the rotary tables of a decoder, or of its layers' attention where these hold them; None for neither.

    Raises:
        NotFusableError: the layers hold different ones.
    """
    if BASES in words.words(decoder):
        return RotaryTables(_ByBase(getattr(decoder, BASES)))
    if role := first_of(decoder, ROTARY):
        return RotaryTables(getattr(decoder, role))
    if found := _module_of(attentions):
        return RotaryTables(found)
    held = [module._buffers.get(TABLE) for module in attentions]
    if not held or held[0] is None:
        return None
    if not all(table is not None and torch.equal(table, held[0]) for table in held):
        raise NotFusableError("The decoder's layers use different rotary embeddings.")
    return RotaryTables(_HeldTable(held[0]))


def _module_of(attentions: Sequence[nn.Module]) -> nn.Module | None:
    """Return the rotary module of layers that have one each, all with the same numbers (Moshi); None where they don't.

    Raises:
        NotFusableError: they hold different ones.
    """
    modules = [module for each in attentions if isinstance(module := getattr(each, MODULE, None), nn.Module)]
    if not modules:
        return None
    for other in modules[1:]:
        pairs = zip(modules[0].buffers(), other.buffers(), strict=True)
        same = type(other) is type(modules[0]) and all(torch.equal(one, two) for one, two in pairs)
        if not same or getattr(other, SCALING, 1.0) != getattr(modules[0], SCALING, 1.0):
            raise NotFusableError("The decoder's layers use different rotary embeddings.")
    return modules[0]


def without_table(decoder: AnyModel) -> dict[str, nn.Module]:
    """Return a stand-in, by its name in a decoder, that gives layers no table."""
    role = first_of(decoder, ROTARY) or ROTARY[0]
    stand_in = Constant((None, None))
    # Some decoders ask it for the kinds of layers that take a table.
    stand_in.__dict__["layer_types"] = getattr(getattr(decoder, role, None), "layer_types", ())
    return {role: stand_in}


def in_pairs(table: torch.Tensor) -> torch.Tensor:
    """Lay a table in halves out with each angle twice in a row."""
    return table[..., : table.shape[-1] // 2].repeat_interleave(2, dim=-1)
