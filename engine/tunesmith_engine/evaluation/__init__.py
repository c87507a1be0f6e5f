"""What a run has learned, measured on rows that it was not trained on, beside the base model."""
