"""`python -m tunesmith_core` is the command `tunesmith`."""

import sys

from tunesmith_core.cli import main

sys.exit(main())
