"""Calls a function when the last reference to something is gone, and not before."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np


def when_gone(call: Callable[..., Any], *arguments: Any) -> np.ndarray:
    """Give an object with whose last reference `call` is made; not at the interpreter's end.

    Keep it as an attribute. A ``__del__`` there would not do: the collector runs those of
    a whole cycle, also of what another one in it keeps alive, as an unread output keeps its
    event and its block. An array is none of the collector's.
    """
    life = np.empty(0, np.uint8)
    weakref.finalize(life, call, *arguments).atexit = False
    return life
