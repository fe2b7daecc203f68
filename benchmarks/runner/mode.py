"""How much a run measures: the one switch that every suite reads.

``smoke`` proves in seconds that each benchmark runs, ``quick`` gives figures in
minutes, ``full`` gives the figures to publish, ``nightly`` also the whole of a grid of
which full measures a balanced part.
"""

from __future__ import annotations

import os

from benchmarks.runner.errors import ModeError

#: Environment variable that carries the mode into asv's and pytest's processes.
VARIABLE = "ASYNCOUT_BENCH_MODE"

MODES = ("smoke", "quick", "full", "nightly")


def current() -> str:
    """Give the mode of this process, one of :data:`MODES`.

    Without the variable, a machine with a CUDA device measures in full and one
    without measures quickly. Asking this does not create a CUDA context.

    Raises
    ------
    ModeError
        The variable has another value.
    """
    mode = os.environ.get(VARIABLE)
    if mode is None:
        return default()
    if mode not in MODES:
        raise ModeError(f"{VARIABLE} is {mode!r}; choose one of {', '.join(MODES)}")
    return mode


def default() -> str:
    """Give the mode for this machine when nobody chose one."""
    import torch  # imported late: most processes of a run never ask

    return "full" if torch.cuda.is_available() else "quick"
