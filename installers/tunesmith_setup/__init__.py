"""Installation: gets uv, builds the environments, installs system libraries, runs the example and the tests.

Standard library, tunesmith_core and tunesmith_assets only: it must run on a bare Python and when all else is broken.
"""
