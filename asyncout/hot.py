"""The hot path's compiled loops, where a compiler was there when the package was installed.

Every loop has a twin in Python beside its user: it does the same, more slowly, and says what
is wrong with its input. ``ASYNCOUT_PURE_PYTHON=1`` leaves the compiled ones out.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def _compiled() -> Any:
    if os.environ.get("ASYNCOUT_PURE_PYTHON"):
        return None
    try:
        return importlib.import_module("asyncout._hot")
    except ImportError:
        return None  # no compiler was there


#: The compiled loops (asyncout/_hot.c), or None.
COMPILED: Any = _compiled()
