"""The proof before step 0: every kernel and attention backend of a run against its PyTorch twin, on this GPU."""
