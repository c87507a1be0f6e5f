"""The Models page: the models on this computer, and those that a hub has."""
