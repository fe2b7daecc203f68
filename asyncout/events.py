"""How a thread waits for an event: one class per value of ``CopyPolicy.wait``."""

from __future__ import annotations

from typing import Protocol

import torch

from asyncout.policy import CopyPolicy
from asyncout.runtime import Event, Runtime


class Waiter(Protocol):
    """Makes the events of one device and waits for them."""

    def new_event(self) -> Event:
        """Make an event of the kind that this waiter's `wait` needs."""

    def wait(self, event: Event) -> None:
        """Return when `event` has passed. Callable from any thread."""


class DriverWait:
    """The driver's own wait: asleep with `blocking`, else running on a core.

    Parameters
    ----------
    runtime : Runtime
    device : torch.device
        Where the events are recorded.
    blocking : bool
        Whether the waiting thread sleeps.
    """

    def __init__(self, runtime: Runtime, device: torch.device, blocking: bool) -> None:
        self._runtime = runtime
        self._device = device
        self._blocking = blocking

    def new_event(self) -> Event:
        """Make an event whose ``synchronize`` sleeps or spins, as asked for."""
        return self._runtime.new_event(blocking=self._blocking)

    def wait(self, event: Event) -> None:
        """Return when `event` has passed."""
        self._runtime.synchronize_event(event, self._device)


def waiter_for(policy: CopyPolicy, runtime: Runtime, device: torch.device) -> Waiter:
    """Choose the waiter of a policy for the events of one device."""
    return DriverWait(runtime, device, blocking=policy.wait == "block")
