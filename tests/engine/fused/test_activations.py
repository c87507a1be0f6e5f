"""The activation store gives back what was written, whatever the policies, lengths and lateness of copies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from tunesmith_core.errors import BugError
from tunesmith_engine.fused import activations
from tunesmith_engine.fused.activations import (
    LEVELS,
    ActivationStore,
    LayerBuffers,
    LayerPolicy,
    store_bytes,
)
from tunesmith_engine.fused.copies import ImmediateCopies, StreamCopies
from tunesmith_engine.fused.ring import Ring
from tunesmith_engine.fused.sent_tiles import SentTiles
from tunesmith_engine.host_memory import PinningError

CAPACITY_TOKENS, TILE_TOKENS = 24, 7
CPU = torch.device("cpu")
KEPT = {
    "none": frozenset({"x", "x_mid", "qkv", "lse", "gate_up"}),
    "mlp": frozenset({"x", "x_mid", "qkv", "lse"}),
    "smart": frozenset({"x", "x_mid"}),
    "full": frozenset({"x"}),
}
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class LateCopies:
    """Copies that run at the last permitted moment, in a random order where any is permitted."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._queues: dict[bool, list[tuple[object, torch.Tensor, torch.Tensor]]] = {False: [], True: []}
        self.num_bytes = 0
        self._host: torch.Tensor | None = None

    def start(self, destination: torch.Tensor, source: torch.Tensor) -> tuple[bool, object]:
        """Queue a copy in its direction's stream; now and then let one of the oldest happen."""
        outward = self._host is not None and _lies_in(destination, self._host)
        ticket = (outward, object())
        self._queues[outward].append((ticket[1], destination, source))
        self.num_bytes += source.numel()
        for queue in self._queues.values():
            if queue and self._random.random() < 0.3:
                self._run_first(queue)
        return ticket

    def wait(self, mark: tuple[bool, object]) -> None:
        """Do what stands in the queue up to the mark."""
        queue = self._queues[mark[0]]
        while any(entry[0] is mark[1] for entry in queue):
            self._run_first(queue)

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Return ordinary memory."""
        self._host = torch.full((num_bytes,), 0xEE, dtype=torch.uint8)
        return self._host

    @property
    def under_way(self) -> int:
        """Number of copies that wait."""
        return sum(map(len, self._queues.values()))

    def _run_first(self, queue: list[tuple[object, torch.Tensor, torch.Tensor]]) -> None:
        _, destination, source = queue.pop(0)
        destination.copy_(source)


def _lies_in(part: torch.Tensor, whole: torch.Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def _layers(number: int, chance: random.Random) -> list[LayerBuffers]:
    """Layers of unequal widths, as in models whose layers differ."""
    return [
        LayerBuffers(
            {
                "x": (chance.randint(1, 9), torch.float32),
                "x_mid": (chance.randint(1, 9), torch.bfloat16),
                "qkv": (chance.randint(1, 9), torch.float16),
                "lse": (chance.randint(1, 3), torch.float32),
                "gate_up": (chance.randint(1, 30), torch.bfloat16),
            },
            KEPT,
            columns=frozenset({"lse"}),
            tile=(chance.randint(1, 30), torch.bfloat16) if chance.random() < 0.9 else None,
        )
        for _ in range(number)
    ]


class Passes:
    """Goes through a store as a model does and remembers what it wrote."""

    def __init__(
        self, store: ActivationStore, num_layers: int, device: torch.device = CPU, tile_tokens: int = TILE_TOKENS
    ) -> None:
        self.store, self.num_layers, self._tile_tokens = store, num_layers, tile_tokens
        self._written: dict[tuple[int, str], torch.Tensor] = {}
        self._written_tiles: dict[tuple[int, int], torch.Tensor] = {}
        self._generator = torch.Generator(device).manual_seed(1)
        self._device = device
        self.num_tiles = 0
        self.between: Callable[[], None] = lambda: None

    def forward(self, num_tokens: int, done: bool = True) -> None:
        """Write random numbers into all buffers; a layer's input is written before its predecessor is done."""
        self._write(0, self.store.forward(0, num_tokens), {"x"})
        for layer in range(self.num_layers):
            self.between()
            self._write(layer, self.store.forward(layer, num_tokens), {"x_mid", "qkv", "lse", "gate_up"})
            if layer + 1 < self.num_layers and layer % 2:
                self.store.forward(layer + 1, num_tokens)
            if done:
                self._write_tiles(layer, num_tokens)
                self.store.forward_done(layer)
            if layer + 1 < self.num_layers:
                self._write(layer + 1, self.store.forward(layer + 1, num_tokens), {"x"})

    def backward(self, num_tokens: int) -> torch.Tensor:
        """Replay what is missing, compare everything, then spoil the buffers; return the number of differences."""
        differences = torch.zeros((), dtype=torch.int64, device=self._device)
        for layer in reversed(range(self.num_layers)):
            tensors, missing = self.store.backward(layer, num_tokens)
            self.between()
            for name in missing:
                tensors[name].copy_(self._written[layer, name])
            for name, tensor in tensors.items():
                differences += (tensor != self._written[layer, name]).sum()
                tensor.fill_(-1)
            differences += self._read_tiles(layer, num_tokens)
            self.store.backward_done(layer)
        return differences

    def _tile_rows(self, num_tokens: int) -> list[int]:
        return [min(self._tile_tokens, num_tokens - start) for start in range(0, num_tokens, self._tile_tokens)]

    def _write_tiles(self, layer: int, num_tokens: int) -> None:
        if tiles := self.store.tiles(layer):
            for number, num_rows in enumerate(self._tile_rows(num_tokens)):
                if (tile := tiles.write(number, num_rows)) is not None:
                    tile.copy_(torch.randn(tile.shape, generator=self._generator, device=self._device))
                    self._written_tiles[layer, number] = tile.clone()
                    tiles.written(number)
                    self.num_tiles += 1

    def _read_tiles(self, layer: int, num_tokens: int) -> torch.Tensor:
        differences = torch.zeros((), dtype=torch.int64, device=self._device)
        if tiles := self.store.tiles(layer):
            for number, num_rows in reversed(list(enumerate(self._tile_rows(num_tokens)))):
                self.between()
                if (tile := tiles.read(number, num_rows)) is not None:
                    differences += (tile != self._written_tiles[layer, number]).sum()
                    tile.fill_(-1)
                    tiles.used(number)
        return differences

    def _write(self, layer: int, tensors: dict[str, torch.Tensor], names: set[str]) -> None:
        for name in names:
            tensor = tensors[name]
            tensor.copy_(torch.randn(tensor.shape, generator=self._generator, device=self._device))
            self._written[layer, name] = tensor.clone()


def _random_policies(number: int, chance: random.Random) -> list[LayerPolicy]:
    places = chance.choice([["host"], ["device"], ["device", "host"], ["device", "host", "host", "host"]])
    return [
        LayerPolicy(chance.choice(LEVELS), chance.choice(places), chance.choice([0, 1, 2, 4])) for _ in range(number)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_gives_back_what_was_written(seed: int) -> None:
    chance = random.Random(seed)
    num_layers, num_slots = chance.randint(1, 9), chance.randint(2, 4)
    layers, policies = _layers(num_layers, chance), _random_policies(num_layers, chance)
    copies = LateCopies(seed)
    store = ActivationStore(layers, policies, CAPACITY_TOKENS, CPU, num_slots, copies, TILE_TOKENS)
    passes = Passes(store, num_layers)
    for _ in range(5):
        num_tokens = chance.choice([0, 1, CAPACITY_TOKENS, chance.randint(1, CAPACITY_TOKENS)])
        if chance.random() < 0.3:
            passes.forward(chance.randint(0, CAPACITY_TOKENS), done=chance.random() < 0.5)
        passes.forward(num_tokens)
        assert passes.backward(num_tokens).item() == 0
        assert copies.under_way == 0, "a pass ends settled"


def test_half_a_pass_disturbs_no_later_one() -> None:
    policies = [LayerPolicy("mlp", "host", 2)] * 7
    for seed in range(10):
        copies = LateCopies(seed)
        layers = _layers(7, random.Random(seed))
        store = ActivationStore(layers, policies, CAPACITY_TOKENS, CPU, 2, copies, TILE_TOKENS)
        passes = Passes(store, 7)
        passes.forward(20)
        store.backward(6, 20)
        store.backward_done(6)
        passes.forward(13)
        assert passes.backward(13).item() == 0
        passes.forward(20)
        store.backward_done(6)
        store.settle()
        assert copies.under_way == 0


@pytest.mark.parametrize("fault", ["no waiting", "slot too early", "wrong length", "tile not sent"])
def test_the_test_sees_faults(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "no waiting":
        monkeypatch.setattr(Ring, "_wait", lambda self, slot: None)
    elif fault == "slot too early":
        monkeypatch.setattr(ActivationStore, "forward_done", lambda self, layer: None)
    elif fault == "tile not sent":
        monkeypatch.setattr(SentTiles, "written", lambda self, number: None)
    else:
        real = LayerBuffers.num_bytes
        monkeypatch.setattr(
            LayerBuffers, "num_bytes", lambda self, names, num: real(self, names, num) // (1 + (num == 20))
        )
    policies = [LayerPolicy("mlp", "host", 2)] * 6
    layers = _layers(6, random.Random(0))
    store = ActivationStore(layers, policies, CAPACITY_TOKENS, CPU, 2, LateCopies(0), TILE_TOKENS)
    passes = Passes(store, 6)
    passes.forward(20)
    assert passes.backward(20).item() > 0


def test_last_layers_are_not_sent_and_only_used_rows_are() -> None:
    copies = LateCopies(0)
    layers = _layers(5, random.Random(0))
    policies = [LayerPolicy("mlp", "host")] * 4 + [LayerPolicy("none", "device")]
    passes = Passes(ActivationStore(layers, policies, CAPACITY_TOKENS, CPU, 2, copies), 5)
    passes.forward(3)
    passes.backward(3)
    one_way = sum(layer.num_bytes(KEPT["mlp"], 3) for layer in layers[:2])
    assert copies.num_bytes == 2 * one_way
    assert one_way < sum(layer.num_bytes(KEPT["mlp"], CAPACITY_TOKENS) for layer in layers[:2])


def test_tiles_are_sent_from_all_over_a_layer_but_the_last_ones() -> None:
    copies = LateCopies(0)
    layer = replace(_layers(1, random.Random(0))[0], tile=(5, torch.bfloat16))
    policies = [LayerPolicy("mlp", "device", 2)] * 3
    store = ActivationStore([layer] * 3, policies, CAPACITY_TOKENS, CPU, 2, copies, TILE_TOKENS)
    passes = Passes(store, 3)
    # Of the four tiles of 7, 7, 7 and 3 rows the first and the third; the last layer's stay.
    assert policies[0].sent_numbers(4) == [0, 2]
    passes.forward(CAPACITY_TOKENS)
    assert passes.backward(CAPACITY_TOKENS).item() == 0
    assert passes.num_tiles == 6
    assert copies.num_bytes == 2 * 4 * layer.tile_bytes(TILE_TOKENS)
    assert store.host_bytes == 4 * layer.tile_bytes(TILE_TOKENS)
    # A short batch has the first alone, and of those two stay.
    passes.forward(5)
    assert passes.backward(5).item() == 0
    assert passes.num_tiles == 6 + 3
    assert copies.num_bytes == 2 * (4 * layer.tile_bytes(TILE_TOKENS) + layer.tile_bytes(5))
    assert [LayerPolicy("mlp", "host", 3).sent_numbers(number) for number in (1, 2, 3, 7)] == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 2, 4],
    ]


def test_a_tile_out_of_its_turn_is_a_bug_of_ours() -> None:
    layer = replace(_layers(1, random.Random(0))[0], tile=(5, torch.bfloat16))
    store = ActivationStore([layer] * 2, [LayerPolicy("mlp", "device", 2)] * 2, 14, CPU, 2, tile_tokens=7)
    Passes(store, 2).forward(14)
    tiles = store.tiles(0)
    assert tiles is not None
    with pytest.raises(BugError, match="Tile 0 of layer 0"):
        tiles.read(0, 7)


def test_as_many_slots_as_layers_copy_nothing() -> None:
    copies = LateCopies(0)
    policies = [LayerPolicy("none", "host")] * 2
    store = ActivationStore(_layers(2, random.Random(0)), policies, CAPACITY_TOKENS, CPU, 4, copies)
    passes = Passes(store, 2)
    passes.forward(9)
    assert passes.backward(9).item() == 0
    assert (copies.num_bytes, store.host_bytes) == (0, 0)


@pytest.mark.parametrize("seed", range(10))
def test_bytes_are_foretold(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    layers, policies = _layers(8, chance), _random_policies(8, chance)
    allocated: list[int] = []
    real = torch.empty

    def counted(*size: int, **options: object) -> torch.Tensor:
        allocated.append(size[0])
        return real(*size, **options)

    monkeypatch.setattr(activations.torch, "empty", counted)
    foretold = store_bytes(layers, policies, CAPACITY_TOKENS, tile_tokens=TILE_TOKENS)
    assert not allocated
    store = ActivationStore(layers, policies, CAPACITY_TOKENS, CPU, tile_tokens=TILE_TOKENS)
    assert (store.device_bytes, store.host_bytes) == foretold
    assert sum(allocated) == sum(foretold)


def test_a_device_plan_counts_every_layer_and_one_shared_set() -> None:
    layer = LayerBuffers({"x": (64, torch.bfloat16), "gate_up": (128, torch.bfloat16)}, {"full": frozenset({"x"})})
    foretold = store_bytes([layer] * 10, [LayerPolicy("full")] * 10, 1000)
    assert foretold == (10 * _rounded(1000 * 128) + _rounded(1000 * 256), 0)
    sent = store_bytes([layer] * 10, [LayerPolicy("full", "host")] * 10, 1000)
    assert sent == (2 * _rounded(1000 * 128) + _rounded(1000 * 256), 8 * _rounded(1000 * 128))


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // 256) * 256


def _store(policies: Sequence[LayerPolicy], num_slots: int = 2) -> ActivationStore:
    return ActivationStore(_layers(len(policies), random.Random(0)), policies, 8, CPU, num_slots, ImmediateCopies())


def test_wrong_order_is_a_bug_of_ours() -> None:
    store = _store([LayerPolicy("none", "host")] * 4)
    for layer in range(4):
        store.forward(layer, 4)
        store.forward_done(layer)
    with pytest.raises(BugError, match="layer 1 does not follow"):
        store.backward(1, 4)
    with pytest.raises(BugError, match="layer 3 does not follow"):
        store.backward(3, 5)
    with pytest.raises(BugError, match="9 tokens"):
        store.forward(0, 9)
    with pytest.raises(BugError, match="ring of 1"):
        _store([LayerPolicy("none", "host")] * 4, num_slots=1)


@on_gpu
@pytest.mark.parametrize("seed", range(8))
def test_streams_give_back_what_was_written(seed: int) -> None:
    chance = random.Random(seed)
    device = torch.device("cuda")
    buffers = LayerBuffers(
        {
            "x": (512, torch.bfloat16),
            "x_mid": (512, torch.bfloat16),
            "qkv": (768, torch.bfloat16),
            "lse": (8, torch.float32),
            "gate_up": (2048, torch.bfloat16),
        },
        KEPT,
        columns=frozenset({"lse"}),
        tile=(4096, torch.bfloat16),
    )
    policies = [
        LayerPolicy(chance.choice(LEVELS), chance.choice(["host", "host", "device"]), chance.randint(0, 4))
        for _ in range(8)
    ]
    store = ActivationStore([buffers] * 8, policies, 2048, device, chance.randint(2, 3), tile_tokens=512)
    passes = Passes(store, 8, device, tile_tokens=512)
    passes.between = lambda: torch.cuda._sleep(chance.choice([0, 0, 100_000, 3_000_000]))
    differences = torch.zeros((), dtype=torch.int64, device=device)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            num_tokens = chance.randint(1, 2048)
            passes.forward(num_tokens)
            differences += passes.backward(num_tokens)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert differences.item() == 0


@on_gpu
def test_graph_replays_copies() -> None:
    device = torch.device("cuda")
    layer = LayerBuffers({"x": (1024, torch.float32), "y": (1024, torch.float32)}, {"mlp": frozenset({"x"})})
    store = ActivationStore([layer] * 6, [LayerPolicy("mlp", "host")] * 6, 512, device)
    source, found = torch.zeros(512, 1024, device=device), torch.zeros(6, 512, 1024, device=device)

    def one_pass() -> None:
        for index in range(6):
            store.forward(index, 512)["x"].copy_(source + index)
            store.forward_done(index)
        for index in reversed(range(6)):
            found[index].copy_(store.backward(index, 512)[0]["x"])
            store.backward_done(index)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        one_pass()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one_pass()
    for value in (3.0, -7.0):
        source.fill_(value)
        graph.replay()
        expected = value + torch.arange(6.0, device=device).view(6, 1, 1).expand_as(found)
        assert torch.equal(found, expected)


@on_gpu
def test_pinned_memory_is_exact_and_given_back() -> None:
    copies = StreamCopies(torch.device("cuda"))
    memory = copies.host_memory(5_000_001)
    assert memory.is_pinned()
    assert memory.numel() == 5_000_001
    view = memory[:10]
    del copies, memory
    assert not view.is_pinned()


@on_gpu
def test_refused_pinning_leaves_the_gpu_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = torch.cuda.cudart()

    class Refusing:
        @staticmethod
        def cudaHostRegister(pointer: int, size: int, flags: int) -> object:
            del pointer, flags
            return runtime.cudaHostRegister(0, size, 0)

    monkeypatch.setattr(torch.cuda, "cudart", lambda: Refusing)
    with pytest.raises(PinningError, match="error"):
        StreamCopies(torch.device("cuda")).host_memory(1 << 20)
    assert torch.ones(3, device="cuda").sum().item() == 3
