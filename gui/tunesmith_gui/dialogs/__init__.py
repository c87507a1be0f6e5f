"""The few dialogs that may stand in the way: stop, delete, close, column mapping."""
