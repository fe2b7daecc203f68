"""``python -m benchmarks.fit``."""

import sys

from benchmarks.fit.command import main

sys.exit(main())
