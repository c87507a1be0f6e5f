"""Answers of a trained model to a person: loaded once, streamed in pieces, beside the base model's."""
