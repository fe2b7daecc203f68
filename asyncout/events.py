"""How a thread waits for an event: one class per value of ``CopyPolicy.wait``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from asyncout.policy import CopyPolicy
from asyncout.prediction import RecentPast
from asyncout.runtime import Event, Runtime

#: Share of a wait after which the next one is awake where that is only like it: it was slept
#: through in the driver, and so ended late by the thread's wake-up; or it was behind an idle
#: device, and this one is behind another step.
SHARE_OF_A_BOUND = 0.6

#: Share of a wait within which the start of the device's work on it must be known, so that the
#: wait says how long such work takes.
KNOWN_START = 0.05

#: Sleeps in a row that outlasted their event, after which what was learned is forgotten. One
#: is jitter; two are a step that has become shorter, and how much nobody saw.
SLEEPS_TO_DOUBT = 2

#: Least sleep worth its system calls, seconds; a shorter remainder is spun.
LEAST_SLEEP_S = 30e-6

#: How late sleeps are taken to end until some have been seen, seconds.
ASSUMED_LATENESS_S = 60e-6

#: Waits that late sleeps of before kept from sleeping, after which a sleep is tried again:
#: nobody learns from no sleep that a machine's slow moment is over. As often again after each
#: trial that ended late, so that a machine that stays slow is seldom asked.
WAITS_TO_TRY = 2
MOST_WAITS_TO_TRY = 64

#: A sleep is on time again when it ends no later than this, seconds.
USUAL_LATENESS_S = 2 * ASSUMED_LATENESS_S

#: Share of the time waited so far after which a timed wait looks again, and the bounds of
#: that pause in seconds: late by a sixteenth at most, for less than a hundredth of a core.
LOOK_AGAIN = 1 / 16
SHORTEST_PAUSE_S = 20e-6
LONGEST_PAUSE_S = 1e-3


class Waiter(Protocol):
    """Records the events of one pair of streams and waits for them."""

    def take(self) -> Event:
        """Give an event that nobody waits for, to be recorded at once."""

    def record(self, stream: Any) -> Event:
        """Record an event of the kind that this wait needs."""

    def wait(self, event: Event) -> None:
        """Return when `event` has passed. Callable from any thread."""

    def recycle(self, event: Event) -> None:
        """Take back an event that has passed and that nobody waits for any more."""


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
        self._synchronize = runtime.synchronizer(device)

    def take(self) -> Event:
        """Make a new event."""
        return self._runtime.new_event(blocking=self._blocking)

    def record(self, stream: Any) -> Event:
        """Record a new event."""
        event = self.take()
        event.record(stream)
        return event

    def wait(self, event: Event) -> None:
        """Return when `event` has passed."""
        self._synchronize(event)

    def recycle(self, event: Event) -> None:
        """Let it go: the next one is new."""


class PooledWait(DriverWait):
    """The driver's own wait on events that are used again."""

    def __init__(self, runtime: Runtime, device: torch.device, blocking: bool) -> None:
        super().__init__(runtime, device, blocking)
        #: Free events; compiled code takes from there too.
        self.ready: deque[Event] = deque()

    def take(self) -> Event:
        """Give an event that nobody waits for; a new one where all are in use."""
        try:
            return self.ready.pop()
        except IndexError:
            return self._runtime.new_pooled_event(self._device, blocking=self._blocking)

    def recycle(self, event: Event) -> None:
        """Keep it for a later record."""
        self.ready.append(event)


class HybridWait:
    """Sleeps for most of the expected wait, then spins in the driver for the rest.

    What is expected is the time that the device takes for a step, from when it could
    begin. Behind an idle device that is the event's record; in a loop that enqueues ahead
    it is the passing of the event before. The two are learned apart: where copies take
    longer than kernels, the first step of a burst takes both, and the others only the
    longer. Each follows the last waits, with their spread, and so does the lateness of
    sleeps: the thread means to be awake two spreads before the earliest it has reason to
    expect.

    A wait that nothing predicts (the first one, or one behind a step that has become
    shorter) sleeps in the driver and costs what "block" costs. The next one spins for
    the last 40 % of that time at most; then the times are known. A wait that comes later
    than expected spins for as long as it is late; once a few were, the next ones expect it. Where
    sleeps ended so late that none is left worth it, one is tried again after a few waits.

    Parameters
    ----------
    runtime : Runtime
    device : torch.device
    """

    def __init__(self, runtime: Runtime, device: torch.device) -> None:
        self._runtime = runtime
        self._device = device
        self._clock = runtime.clock
        self._synchronize = runtime.synchronizer(device)
        #: Free events, by whether a thread spins on them.
        self._free: dict[bool, deque[Any]] = {True: deque(), False: deque()}
        #: Free events of the kind that :meth:`take` gives: to sleep on while nothing predicts
        #: their passing, then to spin on. Compiled code takes from there too.
        self.ready = self._free[False]
        self._behind_idle = RecentPast()
        self._behind_another = RecentPast()
        self._bound: float | None = None
        #: When the last event passed: not before the first, not after the second.
        self._last_passed = (0.0, 0.0)
        self._lateness = RecentPast()
        self._overslept = 0
        self._kept_awake = 0
        self._waits_to_try = WAITS_TO_TRY

    def take(self) -> Event:
        """Give an event to spin on, or to sleep on while nothing predicts its passing."""
        ready = self.ready
        try:
            event = ready.pop()
        except IndexError:
            spins = ready is self._free[True]
            event = self._runtime.new_pooled_event(self._device, blocking=not spins)
            event.spins = spins  # type: ignore[attr-defined]
        event.recorded_at = self._clock()
        return event  # type: ignore[no-any-return]

    def record(self, stream: Any) -> Event:
        """Record an event of the kind that :meth:`take` gives."""
        event = self.take()
        event.record(stream)
        return event

    def wait(self, event: Any) -> None:
        """Return when `event` has passed."""
        earliest, latest = self._last_passed
        if event.query():  # some time ago: says nothing of when
            self._last_passed = (earliest, self._clock())
            return
        begin = max(event.recorded_at, earliest)
        if not event.spins:
            self._synchronize(event)
            now = self._clock()
            self._bound = now - begin
            self.ready = self._free[True]
            self._last_passed = (now, now)
            return
        passing, other = self._behind_idle, self._behind_another
        if earliest > event.recorded_at:
            passing, other = other, passing
        planned = self._sleep_before(begin, self._expected(passing, other, latest > begin))
        if planned is not None and event.query():
            now = self._clock()
            self._last_passed = (min(planned, now), now)
            self._note_oversleep(passing, planned - begin)
            return
        self._synchronize(event)
        now = self._clock()
        self._last_passed = (now, now)
        self._overslept = 0
        if latest - begin <= KNOWN_START * (now - begin):
            passing.add(now - begin)
            self.ready = self._free[True]

    def _expected(self, passing: RecentPast, other: RecentPast, is_open: bool) -> float | None:
        """Give a time that the device will hardly take less than.

        Parameters
        ----------
        passing, other : RecentPast
            Of such waits, and of the other kind.
        is_open : bool
            Whether it may be one of the other kind.
        """
        if passing.count:
            return min(passing.least, other.least) if is_open and other.count else passing.least
        if other.count:
            return SHARE_OF_A_BOUND * other.least
        return None if self._bound is None else SHARE_OF_A_BOUND * self._bound

    def _sleep_before(self, begin: float, expected: float | None) -> float | None:
        """Sleep until shortly before the event is expected; give that time, if it slept.

        Parameters
        ----------
        begin : float
            Since when the device may be at work on what the event waits for.
        expected : float or None
            Seconds from then.
        """
        if expected is None:
            return None
        lateness = self._lateness
        late = lateness.mean + lateness.margin if lateness.count else ASSUMED_LATENESS_S
        planned = begin + expected
        wake = planned - late
        now = self._clock()
        if wake - now < LEAST_SLEEP_S:
            if planned - ASSUMED_LATENESS_S - now >= LEAST_SLEEP_S:
                self._note_kept_awake()
            return None
        self._runtime.sleep(wake - now)
        lateness.add(max(0.0, self._clock() - wake))
        self._kept_awake = 0
        if lateness.count > 1 and late <= USUAL_LATENESS_S:
            self._waits_to_try = WAITS_TO_TRY
        return planned

    def _note_kept_awake(self) -> None:
        self._kept_awake += 1
        if self._kept_awake >= self._waits_to_try:
            self._lateness.forget()
            self._kept_awake = 0
            self._waits_to_try = min(2 * self._waits_to_try, MOST_WAITS_TO_TRY)

    def _note_oversleep(self, passing: RecentPast, planned: float) -> None:
        self._overslept += 1
        if self._overslept < SLEEPS_TO_DOUBT:
            passing.add(planned)  # it passed before that: be there earlier next time
            self.ready = self._free[True]
        else:
            self._behind_idle.forget()
            self._behind_another.forget()
            self._bound = None
            self.ready = self._free[False]
            self._overslept = 0

    def recycle(self, event: Any) -> None:
        """Keep it for a later record."""
        self._free[event.spins].append(event)


def wait_until(runtime: Runtime, has_passed: Callable[[], bool], deadline: float) -> bool:
    """Wait for something to have passed, no longer than to a time on the runtime's clock.

    No driver has such a wait: the thread sleeps and asks, ever more rarely.

    Returns
    -------
    bool
        Whether it has passed.
    """
    begin = runtime.clock()
    while not has_passed():
        now = runtime.clock()
        if now >= deadline:
            return False
        pause = min(max(LOOK_AGAIN * (now - begin), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        runtime.sleep(min(pause, deadline - now))
    return True


def waiter_for(policy: CopyPolicy, runtime: Runtime, device: torch.device) -> Waiter:
    """Choose the waiter of a policy for the events of one device.

    Copies one by one come with a new event each, as in the original.
    """
    if policy.wait == "hybrid":
        return HybridWait(runtime, device)
    kinds: dict[str, Callable[..., Waiter]] = {"per_tensor": DriverWait, "batched": PooledWait}
    return kinds[policy.copies](runtime, device, blocking=policy.wait == "block")
