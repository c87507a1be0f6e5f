"""Fused kernels in Triton, one operation a file, each with a PyTorch twin that computes the same."""
