"""Stacked weights of experts in 4 bits: packed while they are read, unpacked whenever their module asks for them.

transformers packs linear layers alone, but the experts are nearly all of a mixture of experts. bitsandbytes packs them
here in NF4 a stack at a time, so 16-bit weights of more than one stack never lie in memory; those that were published
in MXFP4 are kept, see `mxfp4`. Their module reads its attribute as before; the fused path takes the packed numbers, see
`stacked.packed_stack`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from bitsandbytes.nn import Params4bit
from bitsandbytes.nn.parametrize import replace_parameter_4bit_prequantized
from peft.tuners.lora.layer import ParamWrapper, _LoraFactorsProxy
from peft.tuners.tuners_utils import BaseTuner
from torch import nn
from torch.nn.utils.parametrize import cached, type_before_parametrizations
from transformers.integrations.bitsandbytes import Bnb4bitQuantize
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

from tunesmith_core.expert_memory import is_of_experts
from tunesmith_engine.model import mxfp4
from tunesmith_engine.model.expert_places import HostRoom
from tunesmith_engine.model.stacked import packed_stack, stack_of, stacks


def pack_experts_too(host_room: HostRoom) -> None:
    """Let transformers pack stacked weights as it packs linear layers, and PEFT train adapters of them.

    Args:
        host_room: where they go as they are packed.
    """
    _Pack.host_room = host_room
    AUTO_QUANTIZER_MAPPING["bitsandbytes_4bit"] = _Quantizer
    BaseTuner._inject_parameters = _put_adapters_on
    ParamWrapper.get_param = _like_weight
    ParamWrapper._activate_lora = _with_adapters


def unpack_when_read(model: nn.Module, dtype: torch.dtype) -> None:
    """Give modules their packed stacked weights in a number format whenever they read them.

    Those that lie whole in files of which the rest is packed are packed first.
    """
    for name, module in list(model.named_modules()):
        for role, weight in list(module._parameters.items()):
            if not isinstance(weight, Params4bit) and _is_stack(model, f"{name}.{role}"):
                module._parameters[role] = weight = _packed(weight)
            if isinstance(weight, Params4bit) and len(weight.quant_state.shape) == 3:
                weight.quant_state.dtype = dtype
                if weight.quant_state.quant_type == mxfp4.QUANT_TYPE:
                    mxfp4.unpack_when_read(module, role)
                    continue
                parts = weight.quant_state.as_dict(packed=True)
                replace_parameter_4bit_prequantized(module, role, parts, weight.device)


def _packed(whole: Any) -> Params4bit:  # Any: weights
    if (kept := mxfp4.packed(whole)) is not None:
        return kept
    weight = Params4bit(whole, requires_grad=False, quant_type="nf4", compress_statistics=True)
    return weight.to(whole.device)


# While a model is read


class _Quantizer(Bnb4BitHfQuantizer):
    """Packs linear layers and stacked weights."""

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        """Return whether a weight is packed."""
        return super().param_needs_quantization(model, param_name, **kwargs) or _is_stack(model, param_name)

    def get_quantize_ops(self) -> _Pack:
        """Return what packs a weight."""
        return _Pack(self)


class _Pack(Bnb4bitQuantize):
    """Packs a weight that was read."""

    host_room = HostRoom(0)

    def convert(
        self,
        input_dict: dict[str, Any],
        full_layer_name: str | None = None,
        model: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> dict[str, torch.Tensor]:
        """Return packed weights under the names of whole ones."""
        packed: dict[str, torch.Tensor] = {}
        for name in [name for name in input_dict if _is_stack(model, name)]:
            value = input_dict.pop(name)
            packed[name] = _packed(value[0] if isinstance(value, list) else value)
            self.host_room.take(packed[name])
        return packed | super().convert(input_dict, full_layer_name=full_layer_name, model=model, **kwargs)


def _is_stack(model: Any, name: str) -> bool:  # Any: a transformers model
    """Return whether a weight is packed: other ones of three dimensions, of recurrences say, are far more sensitive."""
    module, _, role = name.rpartition(".")
    return is_of_experts(name) and stack_of(model.get_submodule(module), role) is not None


# While adapters are put on and used

_inject_parameters = BaseTuner._inject_parameters
_get_param = ParamWrapper.get_param
_activate_lora = ParamWrapper._activate_lora


def _put_adapters_on(tuner: BaseTuner, peft_config: Any, model: nn.Module, **named: Any) -> Any:
    """Give the weights that a config names adapters, as if they were whole.

    PEFT itself finds packed weights by their whole names only, and in another order, which shows in an adapter's file.
    """
    with _seeming_whole(model):
        return _inject_parameters(tuner, peft_config=peft_config, model=model, **named)


@contextlib.contextmanager
def _seeming_whole(model: nn.Module) -> Iterator[None]:
    """Put zeros that take no memory in the place of packed weights and of what unpacks them."""
    hidden: list[tuple[Any, type[nn.Module], Any]] = []  # Any: modules whose attributes are their own
    for module in list(model.modules()):
        packed = {role: packed_stack(module, role) for role in stacks(module)}
        packed = {role: weight for role, weight in packed.items() if weight is not None}
        if packed:
            kind, whole = type(module), type_before_parametrizations(module)
            hidden.append((module, kind, module._modules.pop("parametrizations")))
            module.__class__ = whole
            for role, weight in packed.items():
                module._parameters[role] = nn.Parameter(_zeros_like(weight), requires_grad=False)
    try:
        yield
    finally:
        for module, kind, parametrizations in hidden:
            for role in parametrizations:
                del module._parameters[role]
            module.__class__, module._modules["parametrizations"] = kind, parametrizations


def _zeros_like(packed: Any) -> torch.Tensor:  # Any: bitsandbytes' Params4bit has no types
    """Return zeros of a packed weight's size, number format and device that take no memory."""
    state = packed.quant_state
    return torch.zeros((), dtype=state.dtype, device=packed.device).expand(state.shape)


def _like_weight(wrapper: ParamWrapper) -> torch.Tensor:
    """Return a weight or, where it is packed, zeros of its kind.

    An adapter asks for nothing else. The weight itself would be unpacked, and kept for the pass without the adapter.
    """
    packed = packed_stack(wrapper.get_base_layer(), wrapper.parameter_name)
    return _get_param(wrapper) if packed is None else _zeros_like(packed)


@contextlib.contextmanager
def _with_adapters(wrapper: ParamWrapper, active_adapters: list[str]) -> Iterator[None]:
    """Add adapters to a weight for the time of a pass, behind what unpacks it.

    PEFT itself would look at the weight before that, which is kept for the pass without them, and would not take them
    off again.
    """
    module, role = wrapper.get_base_layer(), wrapper.parameter_name
    if packed_stack(module, role) is None:
        with _activate_lora(wrapper, active_adapters):
            yield
        return
    steps = module.parametrizations[role]
    names = [name for name in active_adapters if name in wrapper.lora_A]
    steps.extend(_LoraFactorsProxy(*wrapper.get_delta_factors(name)) for name in names)
    try:
        with cached():
            yield
    finally:
        del steps[len(steps) - len(names) :]
