"""Rows behind each other without padding: which share a micro-batch, and that micro-batch on its device."""
