"""Form and page state without widgets."""
