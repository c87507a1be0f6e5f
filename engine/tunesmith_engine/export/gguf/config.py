"""What a model's settings are for those that write GGUF files."""

from __future__ import annotations

from typing import Any

Config = Any  # Any: transformers' config of a model
