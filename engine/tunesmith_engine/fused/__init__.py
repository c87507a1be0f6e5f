"""The fused model: a plain transformers model with PEFT adapters, run layer by layer by our own kernels."""
