"""``python -m benchmarks.gate``."""

import sys
from collections.abc import Callable

from benchmarks.gate import statuses


def load() -> Callable[[], int]:
    """Import the command late: one that is broken is not "slower"."""
    from benchmarks.gate.command import main

    return main


if __name__ == "__main__":  # asv imports every module, this one too
    sys.exit(statuses.guarded(load))
