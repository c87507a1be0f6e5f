"""The commands of the installer, one module each, imported only when it is called.

A command module has a docstring, whose first line is its help, and two functions: `add_arguments(parser)` declares its
arguments, `run(arguments)` does the work and returns the exit code or raises a TunesmithError.
"""
