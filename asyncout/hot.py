"""The hot path's compiled loops, where a compiler was there when the package was installed.

Every loop has a twin in Python beside its user: it does the same, more slowly, and says what
is wrong with its input. ``ASYNCOUT_PURE_PYTHON=1`` leaves the compiled ones out.

| compiled | twin |
|---|---|
| ``new_rows``, ``fill_rows`` | ``convert.cut_to_counts`` without rows |
| ``mask_rows`` | ``SamplingMaskTensors._tolists_in_python`` |
| ``gather``, ``rebuild`` | ``tree.gather_in_python``, ``tree.rebuild_in_python`` |
| ``lengths_agree`` | the rest of ``checks.check_step`` |
| ``land``, ``Lease`` | ``transfer._BlockLanding``, ``landing.Lease`` |
| ``PlainStep`` | the rest of ``AsyncOutput.__init__`` and what it calls |
| ``Lane``, ``Call``, ``Mark`` | ``cuda_driver``: ``DriverSubmit``, ctypes, ``DriverEvent.record`` |
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


#: The module made of asyncout/csrc, or None.
COMPILED: Any = _compiled()
