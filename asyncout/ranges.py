"""Optional ranges for profilers around enqueue, wait and convert; nothing at all when off.

The methods are wrapped when ranges are enabled and are the plain ones again afterwards:
a step pays nothing for ranges that nobody asked for, not even a condition.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, Protocol

import torch

from asyncout.async_output import AsyncOutput
from asyncout.errors import DeviceUnavailableError, RangesUnavailableWarning
from asyncout.pending_output import PendingOutput
from asyncout.pooling_output import AsyncPoolingOutput

#: Set to 1, true, yes or on: ranges are enabled when asyncout is imported.
VARIABLE = "ASYNCOUT_NVTX"

ENQUEUE, GET_OUTPUT = "asyncout.enqueue", "asyncout.get_output"
WAIT, CONVERT = "asyncout.wait", "asyncout.convert"

#: Which methods each range is around. Wait and convert lie inside get_output; of pooled
#: vectors, what is left of it after the wait is the conversion.
WRAPPED: tuple[tuple[type, str, str], ...] = (
    (AsyncOutput, "__init__", ENQUEUE),
    (AsyncPoolingOutput, "__init__", ENQUEUE),
    (AsyncOutput, "_finish", GET_OUTPUT),
    (AsyncPoolingOutput, "_finish", GET_OUTPUT),
    (PendingOutput, "_wait", WAIT),
    (AsyncOutput, "_fill_in", CONVERT),
)

_lock = Lock()
_plain: dict[tuple[type, str], Callable[..., Any]] = {}


class RangeMarker(Protocol):
    """Opens and closes ranges of the calling thread, as ``torch.cuda.nvtx`` does."""

    def range_push(self, msg: str) -> Any:
        """Open a range inside those that are open."""

    def range_pop(self) -> Any:
        """Close the range that was opened last."""


def enable_nvtx(marker: RangeMarker | None = None) -> None:
    """Put a range around each output's enqueue, get_output, wait and convert.

    Enabling them again only changes the marker. Not meant to be called while other
    threads are inside an output's methods: a call that has begun ends as it began.

    Parameters
    ----------
    marker : RangeMarker, optional
        Default: ``torch.cuda.nvtx``, which Nsight Systems shows.

    Raises
    ------
    DeviceUnavailableError
        This torch has no NVTX; no range was put anywhere.
    """
    chosen: RangeMarker = _torch_nvtx() if marker is None else marker
    with _lock:
        _restore()
        for owner, name, label in WRAPPED:
            _plain[owner, name] = owner.__dict__[name]
            setattr(owner, name, _in_range(owner.__dict__[name], label, chosen))


def disable_nvtx() -> None:
    """Take all ranges away; the methods are the plain ones again."""
    with _lock:
        _restore()


def enable_if_asked() -> None:
    """Enable ranges when the environment asks for them; warn where there are none to be had.

    Called once, when asyncout is imported.
    """
    if os.environ.get(VARIABLE, "0").lower() not in ("1", "true", "yes", "on"):
        return
    try:
        enable_nvtx()
    except DeviceUnavailableError as error:
        warnings.warn(f"{VARIABLE} is set: {error}", RangesUnavailableWarning, stacklevel=3)


def _restore() -> None:
    for (owner, name), method in _plain.items():
        setattr(owner, name, method)
    _plain.clear()


def _in_range(method: Callable[..., Any], label: str, marker: RangeMarker) -> Callable[..., Any]:
    push, pop = marker.range_push, marker.range_pop

    @wraps(method)
    def ranged(*args: Any, **kwargs: Any) -> Any:
        push(label)
        try:
            return method(*args, **kwargs)
        finally:
            pop()

    return ranged


def _torch_nvtx() -> RangeMarker:
    nvtx: Any = torch.cuda.nvtx  # how it is typed differs between torch's versions
    try:
        nvtx.mark("asyncout ranges enabled")
    except RuntimeError as error:
        raise DeviceUnavailableError(
            f"this torch ({torch.__version__}) has no NVTX: {error} Use a CUDA build, or give "
            "enable_nvtx a marker of your own"
        ) from error
    marker: RangeMarker = nvtx
    return marker
