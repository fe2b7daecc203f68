"""``python -m benchmarks.runner``."""

import sys

from benchmarks.runner.driver import main

if __name__ == "__main__":  # asv imports every module, this one too
    sys.exit(main())
