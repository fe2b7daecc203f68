"""Keeps alive what a running copy touches when nobody else does any more.

An output that is dropped unread, or whose construction failed half-way, leaves
copies running. Their sources must not be given to another kernel, nor their
destinations to another reader, before the event after them has passed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from asyncout.runtime import Event

# Appended to from destructors, which run in any thread at any point, also inside
# release_passed: deque.append takes no lock.
kept: deque[tuple[Event, Any, Callable[[Event], None]]] = deque()
_lost: list[Any] = []
_releasing = threading.Lock()


def keep_until(event: Event, objects: Any, recycle: Callable[[Event], None]) -> None:
    """Hold a reference to `objects` until `event` has passed; then `recycle` the event.

    Never waits and makes no driver call, so that a destructor may call it. The
    reference goes at the first :func:`release_passed` after the event.
    """
    kept.append((event, objects, recycle))


def release_passed() -> None:
    """Let go of what is kept behind events that have passed. Never waits, never raises."""
    if not kept or not _releasing.acquire(blocking=False):
        return
    try:
        for _ in range(len(kept)):
            event, objects, recycle = kept.popleft()
            try:
                has_passed = event.query()
            except Exception:  # a lost device: its error is that of whoever waits for it
                keep_forever((event, objects))
                continue
            if has_passed:
                recycle(event)
            else:
                kept.append((event, objects, recycle))
            del objects
    finally:
        _releasing.release()


def keep_forever(objects: Any) -> None:
    """Hold a reference to `objects` for good: a lost device may still write to them."""
    _lost.append(objects)


def kept_count() -> int:
    """How many dropped outputs are still being kept."""
    return len(kept)
