"""Builds the installers on Linux, from a checkout: `python -m tunesmith_setup.build`.

The recipes lie in installers/windows and installers/linux. Equal sources give equal bytes: every time stamp is the date
of the last commit, or what SOURCE_DATE_EPOCH says.
"""
