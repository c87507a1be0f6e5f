"""What the fused model takes of a GPU's memory, counted from the numbers of a model's files.

The engine plans the same from the model itself (`tunesmith_engine.fused.memory`); a test holds the two together.
Symbols: d is the hidden size, q and k are the widths of queries and of keys, f is the width of the MLP.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tunesmith_core import altup_memory, expert_memory
from tunesmith_core.adapter_ranks import is_in_layers, layer_numbers, ranks, size_of
from tunesmith_core.mixer_memory import (
    INTERLEAVED,
    Mixer,
    has_layers_of_one_block,
    lent_numbers,
    mixers,
    num_mlps_alone,
)
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import ALL_LINEAR
from tunesmith_core.trained_parts import FULL, LORA

LEVELS = ("none", "mlp", "smart", "full", "saver")
"""How much of a layer is computed again in the backward pass, from nothing to all but its last product; at last the
layers' inputs go to the computer's memory as well."""

COLUMN_ALIGNMENT = 64
NUM_SLOTS = 2
"""Of the ring on the device: one is computed on while another is copied."""

USABLE_SHARE = 0.94
"""Of the free memory; the rest is for what other programs take meanwhile and for gaps between tensors."""

LIBRARY_BYTES = 96 * 2**20
"""Workspaces of cuBLAS and cuDNN, which PyTorch allocates with the tensors."""

NF4_BYTES = 0.516
"""Bytes per weight: 4 bits, one 8-bit scale per 64 weights, one 32-bit scale per 256 of those (QLoRA, section 3)."""
MXFP4_BYTES = 17 / 32
"""Bytes per weight: 4 bits, and one 8-bit scale per 32 weights."""
INT8_BYTES = 1.002
"""A byte for each number, and a 32-bit scale for each row."""

_ATTENTION_OUTPUTS = frozenset({"o_proj", "out_proj", "dense", "c_proj"})
_MLP_OUTPUTS = frozenset({"down_proj", "fc2", "fc_out", "dense_4h_to_h", "c_proj", "w2", "output_linear"})
_MERGED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
_MERGED |= {"w1": "gate_up", "w3": "gate_up"}
_MERGED |= {"g_proj": "qkv", "q_a_proj": "qkv", "kv_a_proj_with_mqa": "qkv"}
_MERGED |= dict.fromkeys("in_proj_qkv in_proj_z in_proj_b in_proj_a in_proj_qkvz in_proj_ba".split(), "qkv")


_NORMS_BEHIND = (".post_feedforward_layernorm.weight", ".post_mlp_layernorm.weight", ".post_ffn_norm.weight")
"""Where there is one behind the MLP, there is one behind attention."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a micro-batch is cut where not all of its intermediate results have room at once.

    Attributes:
        mlp_tokens: rows of the MLP that are computed together.
        head_rows: rows whose logits exist together.
        attention_numbers: queries times their width that attention takes at once; its backward pass keeps several times
            as much beside them.
    """

    mlp_tokens: int
    head_rows: int
    attention_numbers: int


WHOLE = Tiling(mlp_tokens=16384, head_rows=1024, attention_numbers=2**25)
SAVER = Tiling(mlp_tokens=2048, head_rows=512, attention_numbers=2**23)


def _tiling(level: str) -> Tiling:
    """Return the tiling of a level; the engine takes one between the two where that lets it keep more."""
    return SAVER if level == "saver" else WHOLE


_MLP_NORM = ".mlp.ffn_sub_norm.weight"
"""Of what the MLP's output reads."""


@dataclass(slots=True)
class _Product:
    """Linear layers that are one product: their outputs, inputs and the sum of their ranks, one more for biases."""

    name: str
    rows: int = 0
    columns: int = 0
    rank: int = 0
    has_magnitudes: bool = False
    has_bias: bool = False

    @property
    def extra(self) -> int:
        """Columns R that the adapters take."""
        return math.ceil((self.rank + self.has_bias) / COLUMN_ALIGNMENT) * COLUMN_ALIGNMENT

    @property
    def buffer(self) -> int:
        """Numbers of the weights with the adapters beside and below."""
        return (self.rows + self.extra) * (self.columns + self.extra)


def _products(spec: RunSpec, card: ModelCard) -> Iterator[_Product]:
    targets = spec.adapter.target_modules
    numbers, patterns = layer_numbers(spec.adapter), ranks(spec.adapter.rank_pattern)
    found: dict[tuple[str, str], _Product] = {}
    for tensor, (rows, columns) in card.linear_shapes.items():
        parent, _, leaf = tensor.removesuffix(".weight").rpartition(".")
        name = _MERGED.get(leaf, leaf)
        product = found.setdefault((parent, name), _Product(name, columns=columns))
        product.rows += rows
        is_wanted = spec.adapter.kind == LORA and (targets == ALL_LINEAR or leaf in targets)
        if is_wanted and is_in_layers(numbers, tensor):
            product.rank += size_of(spec.adapter, tensor.removesuffix(".weight"), patterns)
            product.has_magnitudes = spec.adapter.dora
        if spec.adapter.kind == LORA and tensor.removesuffix("weight") + "bias" in card.shapes:
            product.has_bias = True
    yield from found.values()


def products_of(card: ModelCard) -> Iterator[tuple[str, int, int]]:
    """Yield name, rows and columns of the products of each layer, in which linear layers of one input are together."""
    whole = RunSpec()
    whole.adapter.kind = FULL
    for product in _products(whole, card):
        yield product.name, product.rows, product.columns


def _inner_width(card: ModelCard) -> int:
    """Return the width of gate and up together, or of up where the MLP has no gate, of the widest layer; 0 for none."""
    if has_layers_of_one_block(card) and not num_mlps_alone(card):
        return 0
    leaves = {tensor.removesuffix(".weight").rpartition(".")[2] for tensor in card.linear_shapes}
    names_gate = any("gate" in leaf or leaf in ("w3", "input_linear") for leaf in leaves)
    has_gate = bool(card.expert_shapes) or not leaves or names_gate
    return card.intermediate_size * (2 if has_gate else 1)


def _gate_up(card: ModelCard, extra: int) -> int:
    """Return the numbers of a token that gate and up of a layer have, on average, with the adapters' columns."""
    experts = expert_memory.sparse_mlp(card)
    dense = _inner_width(card) + extra
    num_mlps = num_mlps_alone(card) if has_layers_of_one_block(card) else card.num_layers
    if experts is None:
        return math.ceil(dense * num_mlps / card.num_layers)
    sparse = experts.kept + (2 * experts.shared_width + extra if experts.shared_width else 0)
    total = experts.num_layers * sparse + (num_mlps - experts.num_layers) * dense
    return math.ceil(total / card.num_layers)


def _is_parallel(card: ModelCard) -> bool:
    """Return whether attention and MLP may read the same input, for which the layers keep one more gradient."""
    if has_layers_of_one_block(card):
        return False
    norms = [
        tensor
        for tensor, shape in card.shapes.items()
        if ".0." in tensor and tensor.endswith(".weight") and shape == (card.hidden_size,)
    ]
    return len(norms) == 1 or any(INTERLEAVED in tensor for tensor in card.linear_shapes)


def weight_bytes(
    spec: RunSpec, card: ModelCard, size: int, embedding_on_host: bool, experts_on_host: int = 0
) -> int:
    """Return the memory of the frozen weights with room for the adapters.

    Those in 4 bits, and those whose rows DoRA scales, have room to be unpacked as well.

    Args:
        size: bytes per number, 2 or 4.
        embedding_on_host: an embedding that is not the head as well lies in the computer's memory.
        experts_on_host: of so many layers the codes of experts in 4 bits lie there, too.
    """
    products = list(_products(spec, card))
    total = float((card.num_parameters - card.num_linear_parameters) * size)
    if embedding_on_host and not card.tied:
        total -= card.vocab_size * card.hidden_size * size
    in_4_bits = spec.quantization.kind == "nf4"
    if in_4_bits:
        packed, of_layer = expert_memory.stacked_numbers(card)
        total += packed * (stacked_bytes(card) - size) + of_layer * size
        total -= expert_memory.code_bytes(card, experts_on_host)
    unpacked = [product for product in products if in_4_bits or product.has_magnitudes]
    if in_4_bits:
        total += card.num_linear_parameters * NF4_BYTES
    else:
        total += sum(product.rows * product.columns for product in unpacked) * size
        total += sum(product.buffer for product in products if not product.has_magnitudes) * size
    total += sum(product.extra * (product.rows + product.columns) for product in unpacked) * size
    if experts := expert_memory.sparse_mlp(card):
        # The adapters in the run's number format: gate and up with their inputs, and down.
        columns = experts.num_experts * expert_memory.num_ranks(spec, card) // 2
        total += experts.num_layers * columns * (3 * experts.width + 2 * card.hidden_size) * size
    largest: dict[str, int] = {}
    for product in unpacked:
        largest[product.name] = max(largest.get(product.name, 0), product.buffer)
    # Two products are unpacked at a time.
    return round(total) + sum(sorted(largest.values())[-2:]) * size


def stacked_bytes(card: ModelCard) -> float:
    """Return the bytes of one number of the experts of a 4-bit base."""
    return MXFP4_BYTES if card.packed_format == "mxfp4" else NF4_BYTES


def activation_bytes(spec: RunSpec, card: ModelCard, size: int, num_tokens: int, level: str) -> int:
    """Return the memory of what is kept for the backward pass, and of the workspace that all layers share.

    Args:
        size: bytes per number, 2 or 4.
        num_tokens: of a micro-batch.
        level: one of LEVELS.
    """
    d = card.hidden_size
    products = list(_products(spec, card))
    extra = max((product.extra for product in products), default=0)
    scaled = {product.name for product in products if product.has_magnitudes}
    kinds, gate_up = mixers(card, "qkv" in scaled), _gate_up(card, extra)
    # The gradient of DoRA's magnitudes needs the outputs of the blocks.
    # So do norms behind them.
    has_norms = any(tensor.endswith(_NORMS_BEHIND) for tensor in card.shapes)
    of_attention = d * (has_norms or bool(scaled & _ATTENTION_OUTPUTS))
    of_mlp = d * (has_norms or bool(scaled & _MLP_OUTPUTS))
    outputs = of_mlp + (0 if level in ("full", "saver") else of_attention)
    # A layer of one block leaves nothing between two.
    middle = 0 if has_layers_of_one_block(card) else d
    between = {"none": middle + gate_up, "mlp": middle, "smart": middle}
    kept = d * altup_memory.num_streams(card) + between.get(level, 0) + outputs
    wide = [kind.kept + kind.kept_columns * extra for kind in kinds]
    attention = sum(kind.num_layers * width for kind, width in zip(kinds, wide, strict=True))
    shared = {"none": 0, "mlp": 0, "smart": max(wide)}.get(level, max(wide) + middle + of_attention)
    num_kept = min(NUM_SLOTS, card.num_layers) if level == "saver" else card.num_layers
    keeps_attention = level in ("none", "mlp")
    num_sums = sum(kind.num_sums * (kind.num_layers + 1 if keeps_attention else 2) for kind in kinds)
    beside = max(kind.beside + kind.beside_columns * extra for kind in kinds) + d * _is_parallel(card)
    beside += lent_numbers(card, size) + _own_inputs(card) + (d + extra) * bool(_own_inputs(card))
    beside += altup_memory.beside(card, extra)
    numbers = num_kept * kept + keeps_attention * attention + shared + 3 * (d + extra) + beside
    inside = max(kind.passing_bytes(size, num_tokens, _tiling(level).attention_numbers) for kind in kinds)
    inside = max(inside, num_tokens * altup_memory.passing_bytes(card, size))
    inside += min(num_tokens, _tiling(level).mlp_tokens) * altup_memory.tile_bytes(card, size)
    # The head works where the blocks of the layers do: what it takes is counted there.
    head = logit_bytes(card, size, num_tokens, level)
    block = max(0, _block_bytes(card, kinds, extra, size, num_tokens, level) - head)
    block += _expert_bytes(spec, card, extra, size, num_tokens, level)
    return num_tokens * (size * numbers + 4 * num_sums) + inside + block


def _block_bytes(
    card: ModelCard, kinds: Sequence[Mixer], extra: int, size: int, num_tokens: int, level: str
) -> int:
    """Return the memory of one block's intermediate results: gradients of attention's inputs, or a tile of the MLP."""
    experts, tile = expert_memory.sparse_mlp(card), min(num_tokens, _tiling(level).mlp_tokens)
    inner = _inner_width(card)
    if experts and experts.num_layers == card.num_layers:
        inner = 2 * experts.shared_width
    width = card.intermediate_size if inner == _inner_width(card) else experts.shared_width if experts else 0
    # Where the experts have a norm, gate and up of the MLP beside them lie with theirs.
    has_room = level == "none" or (experts is not None and experts.has_branches)
    mlp = tile * (width + extra + (0 if has_room else inner + extra)) if inner else 0
    if any(name.endswith(_MLP_NORM) for name in card.shapes):
        mlp += 2 * tile * card.intermediate_size
    attention = max(kind.block + kind.block_columns * extra for kind in kinds)
    own = _own_inputs(card)
    others = max(2 * own + extra if own else 0, altup_memory.block(card, extra))
    return size * max(mlp, num_tokens * max(attention, others))


def _own_inputs(card: ModelCard) -> int:
    """Return the numbers of a token that all layers together have of their own, as Gemma 4 has them."""
    found = [rows for name, (rows, _) in card.linear_shapes.items() if ".per_layer_model_projection." in name]
    return max(found, default=0)


def _expert_bytes(spec: RunSpec, card: ModelCard, extra: int, size: int, num_tokens: int, level: str) -> int:
    """Return the memory of the experts of a tile of tokens, and of what chooses them."""
    experts = expert_memory.sparse_mlp(card)
    if experts is None:
        return 0
    d, num_ranks, tile = card.hidden_size, expert_memory.num_ranks(spec, card), _tiling(level).mlp_tokens
    numbers = experts.block(d, num_ranks, extra)
    if level != "none":
        numbers += experts.kept + (2 * experts.shared_width + extra if experts.shared_width else 0)
    sizes = experts.num_experts, experts.per_token, d, size, experts.has_branches
    passing = expert_memory.passing_bytes(num_tokens, tile, *sizes)
    # The sums from which gradients of adapters are taken, of one product at a time.
    sums = 2 * experts.num_experts * num_ranks * max(d, 2 * experts.width)
    return min(num_tokens, tile) * numbers * size + passing + sums


def tokens_at_once(card: ModelCard, num_tokens: int, level: str) -> int:
    """Return of how many tokens with all heads attention takes the memory: long batches go by groups of heads."""
    return mixers(card, False)[0].tokens_at_once(num_tokens, _tiling(level).attention_numbers)


def logit_bytes(card: ModelCard, size: int, num_tokens: int, level: str) -> int:
    """Return the memory of one chunk of the head: logits and four rows as wide as the model."""
    return min(num_tokens, _tiling(level).head_rows) * (card.vocab_size + 4 * card.hidden_size) * size
