"""Specs of earlier versions, brought to the present one step by step.

Steps take JSON values as they come, wrong ones included: what is wrong is told by the reader of the present version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Values = dict[str, Any]  # Any: JSON values

SOURCE_FIELDS = ("path", "format", "columns")
USUAL_BY_ZERO = ("beta", "sft_weight")
QUANTIZATION = {"lora": "none", "qlora": "nf4"}


def _from_1(values: Values) -> Values:
    """One method became adapter and quantization, one file a list of sources, one device a list of devices."""
    method, data, hardware = (values.get(name) for name in ("method", "data", "hardware"))
    values = {name: section for name, section in values.items() if name != "method"}
    if isinstance(method, dict):
        values["adapter"] = {name: value for name, value in method.items() if name != "kind"}
        if "kind" in method:
            values["quantization"] = {"kind": QUANTIZATION.get(str(method["kind"]), method["kind"])}
    elif method is not None:
        values["adapter"] = method
    if isinstance(data, dict):
        source = {name: value for name, value in data.items() if name in SOURCE_FIELDS}
        rest = {name: value for name, value in data.items() if name not in SOURCE_FIELDS}
        values["data"] = {"sources": [source], **rest}
    if isinstance(hardware, dict):
        device, index = hardware.get("device", "auto"), hardware.get("gpu_index", 0)
        rest = {name: value for name, value in hardware.items() if name not in ("device", "gpu_index")}
        numbered = index and device != "cpu"
        values["hardware"] = {"devices": [f"{device}:{index}" if numbered else device], **rest}
    return values


def _from_2(values: Values) -> Values:
    """A beta and a weight of the SFT loss of 0 stood for the usual value, which is empty now."""
    objective = values.get("objective")
    if not isinstance(objective, dict):
        return values
    usual = {name: None for name in USUAL_BY_ZERO if name in objective and objective[name] == 0}
    return {**values, "objective": {**objective, **usual}}


MIGRATIONS: dict[int, Callable[[Values], Values]] = {1: _from_1, 2: _from_2}
"""Version -> what brings its specs to the next one."""


def migrated(values: Values, version: int) -> Values:
    """Return a spec of any version up to the present one as one of that; the given one is left as it is.

    Args:
        values: the parsed JSON.
        version: the present one.
    """
    # Not isinstance: true counts as 1 there.
    while type(present := values.get("version")) is int and present in MIGRATIONS and present != version:
        values = {**MIGRATIONS[present](values), "version": present + 1}
    return values
