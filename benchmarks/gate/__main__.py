"""``python -m benchmarks.gate``."""

import sys

from benchmarks.gate.command import main

if __name__ == "__main__":  # asv imports every module, this one too
    sys.exit(main())
