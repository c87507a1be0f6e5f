"""What the window, the engine and the installers must agree on: standard library only."""

__version__ = "0.1.0"
