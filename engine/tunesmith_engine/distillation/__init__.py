"""Learning from a bigger model: token by token, on the answers of the data or on the model's own."""
