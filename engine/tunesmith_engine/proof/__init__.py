"""The proof before step 0: every kernel and attention rung of a run against its PyTorch twin, on this GPU."""
