"""Kinds of adapters beside LoRA: where each comes from, which settings it has, and how large it is.

They are PEFT's and train in plain PyTorch. `tunesmith_engine.model.other_adapters` tells PEFT about them; a test holds
the sizes and PEFT together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunesmith_core.objectives import uses

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec

FEEDFORWARD = frozenset({"down_proj", "fc2", "w2", "dense_4h_to_h", "fc_out", "c_proj"})
"""Names of layers whose inputs IA3 scales; of others it scales the outputs (section 3.3 of its paper)."""

Size = Callable[[str, int, int, int], int]
"""Trained numbers of a layer, by its name, its outputs, its inputs, and the rank."""


@dataclass(frozen=True, slots=True)
class AdapterKind:
    """A kind of adapter.

    Attributes:
        title: its name, the same in every language.
        paper: who described it where.
        size: of a layer.
        settings: of the section "adapter" that it has, beside the target modules.
        takes_quantized: whether PEFT has it for frozen weights in 4 and 8 bits.
        kept_bytes: for each number of an adapted weight, what a step keeps until its backward pass; measured, see
            tests/engine/test_other_adapters.py.
    """

    title: str
    paper: str
    size: Size
    settings: frozenset[str] = frozenset({"layers", "rank", "alpha"})
    takes_quantized: bool = False
    kept_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.title}, {self.paper}"


def _of_ia3(name: str, rows: int, columns: int, rank: int) -> int:
    del rank
    return columns if name.rpartition(".")[2] in FEEDFORWARD else rows


def _of_vera(name: str, rows: int, columns: int, rank: int) -> int:
    del name, columns
    return rows + rank


def _of_oft(name: str, rows: int, columns: int, rank: int) -> int:
    del name, rows
    size = block_size(columns, rank)
    return columns // size * (size * (size - 1) // 2)


def _of_loha(name: str, rows: int, columns: int, rank: int) -> int:
    del name
    return 2 * rank * (rows + columns)


def _of_lokr(name: str, rows: int, columns: int, rank: int) -> int:
    del name
    (few_rows, many_rows), (few_columns, many_columns) = _factors(rows), _factors(columns)
    is_low = rank < max(many_rows, many_columns) / 2
    second = rank * (many_rows + many_columns) if is_low else many_rows * many_columns
    return few_rows * few_columns + second


def _of_randlora(name: str, rows: int, columns: int, rank: int) -> int:
    del name
    narrow = min(rows, columns)
    return math.ceil(narrow / rank) * (rank + narrow)


def _of_miss(name: str, rows: int, columns: int, rank: int) -> int:
    del name, columns
    return rank * rows


def _of_delora(name: str, rows: int, columns: int, rank: int) -> int:
    del name
    return rank * (rows + columns) + 1


KINDS: Mapping[str, AdapterKind] = {
    "oft": AdapterKind("OFT", "Qiu et al. 2023, arXiv:2306.07280", _of_oft, frozenset({"layers", "rank"}), True),
    "vera": AdapterKind(
        "VeRA", "Kopiczko et al. 2023, arXiv:2310.11454", _of_vera, frozenset({"layers", "rank", "dropout"}), True
    ),
    "ia3": AdapterKind("IA3", "Liu et al. 2022, arXiv:2205.05638", _of_ia3, frozenset(), True),
    "loha": AdapterKind("LoHa", "Hyeon-Woo et al. 2021, arXiv:2108.06098", _of_loha, kept_bytes=4),
    "lokr": AdapterKind("LoKr", "Yeh et al. 2023, arXiv:2309.14859", _of_lokr, kept_bytes=4),
    "randlora": AdapterKind(
        "RandLoRA",
        "Albert et al. 2025, arXiv:2502.00987",
        _of_randlora,
        frozenset({"layers", "rank", "alpha", "dropout"}),
        True,
        kept_bytes=4,
    ),
    "miss": AdapterKind("MiSS", "Kang and Yin 2024, arXiv:2409.15371", _of_miss, frozenset({"layers", "rank"})),
    "delora": AdapterKind("DeLoRA", "Bini et al. 2025, arXiv:2503.18225", _of_delora, frozenset({"layers", "rank"})),
}
"""By `adapter.kind`. Their ranks mean what they do in PEFT; of OFT it is the size of a block."""


def block_size(width: int, wanted: int) -> int:
    """Return the size of OFT's blocks: the divisor of a layer's inputs nearest to what is wanted, as PEFT takes it."""
    if wanted >= width:
        return width
    higher = next(size for size in range(wanted, width + 1) if width % size == 0)
    lower = next(size for size in range(wanted, 0, -1) if width % size == 0)
    return lower if wanted - lower <= higher - wanted else higher


def _factors(number: int) -> tuple[int, int]:
    """Return the two factors of a number that are nearest to each other, the smaller one first."""
    small = next(each for each in range(math.isqrt(number), 0, -1) if number % each == 0)
    return small, number // small


@dataclass(frozen=True, slots=True)
class Paper:
    """What a setting of training stands for: its name, and who described it where."""

    title: str
    paper: str

    def __str__(self) -> str:
        return f"{self.title}, {self.paper}"


_PISSA = Paper("PiSSA", "Meng et al. 2024, arXiv:2404.02948")
STARTS: Mapping[str, Paper] = {
    "pissa": _PISSA,
    "pissa_niter_16": _PISSA,
    "olora": Paper("OLoRA", "Buyukakyuz 2024, arXiv:2406.01775"),
    "eva": Paper("EVA", "Paischer et al. 2024, arXiv:2410.07170"),
}
"""By `adapter.initial_values`."""

DORA = Paper("DoRA", "Liu et al. 2024, arXiv:2402.09353")
RSLORA = Paper("rsLoRA", "Kalajdzievski 2023, arXiv:2312.03732")
LORA_PLUS = Paper("LoRA+", "Hayou et al. 2024, arXiv:2402.12354")
NEFTUNE = Paper("NEFTune", "Jain et al. 2023, arXiv:2310.05914")


def papers(spec: RunSpec) -> list[str]:
    """Return the names and papers of what a run does beside plain training of a LoRA adapter, by its settings."""
    adapter, optimizer = spec.adapter, spec.optimizer
    if kind := KINDS.get(adapter.kind):
        found: list[object] = [kind]
    elif adapter.kind == "lora":
        found = [
            *([DORA] if adapter.dora else []),
            *([RSLORA] if adapter.rslora else []),
            *([STARTS[adapter.initial_values]] if adapter.initial_values in STARTS else []),
            *([LORA_PLUS] if optimizer.lora_plus_ratio != 1.0 else []),
        ]
    else:
        found = []
    if optimizer.neftune_alpha and uses(spec.objective.kind, "optimizer.neftune_alpha"):
        found.append(NEFTUNE)
    return list(map(str, found))
