"""``python -m benchmarks.fit``."""

import sys

from benchmarks.fit.command import main

if __name__ == "__main__":  # asv imports every module here
    sys.exit(main())
