"""`python -m graphc` is the graphc command."""

import sys

from graphc.cli import main

sys.exit(main())
