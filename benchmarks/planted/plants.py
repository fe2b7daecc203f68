"""What is planted: code that is appended to a module of the library and slows it.

Appended, so that it still fits when the library changes, and written against the
runtime seam, so that it costs virtual time on the virtual device.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Share by which the enqueue gets slower.
ENQUEUE_SHARE = 0.3

#: Seconds by which each wait ends later: as much as a blocking wait's own wake-up, so that it
#: shows under every policy.
LATE_S = 200e-6


@dataclass(frozen=True)
class Plant:
    """A change of the library, and what must be flagged for it.

    Attributes
    ----------
    name : str
        The commit's message.
    path : str
        The module that it is appended to, from the repository's root.
    code : str
    shows_in : str
        asv's class of benchmarks of which one at least must be flagged; "Modelled" behind it
        gives that of the modelled ones.
    """

    name: str
    path: str
    code: str
    shows_in: str


#: Each construction is followed by work of the host for a share of the time that it took.
SLOW_ENQUEUE = Plant(
    name=f"Planted: enqueue takes {ENQUEUE_SHARE:.0%} longer",
    path="asyncout/async_output.py",
    shows_in="bench_library.Enqueue",
    code=f"""

_unplanted_init = AsyncOutput.__init__


def _planted_init(self, output, sampled, counts, main_stream, *rest, **options):
    from asyncout.runtime import runtime_of

    runtime = runtime_of(main_stream)
    begin = runtime.clock()
    _unplanted_init(self, output, sampled, counts, main_stream, *rest, **options)
    extra = {ENQUEUE_SHARE} * (runtime.clock() - begin)
    if hasattr(runtime, "host_work"):  # virtual time passes only when it is spent
        runtime.host_work(extra)
    else:
        end = runtime.clock() + extra
        while runtime.clock() < end:
            pass


AsyncOutput.__init__ = _planted_init
""",
)

#: Each wait is followed by a sleep.
LATE_WAKE_UP = Plant(
    name=f"Planted: waits end {LATE_S * 1e6:.0f} µs later",
    path="asyncout/events.py",
    shows_in="bench_waits.WakeUp",
    code=f"""

_unplanted_waiter_for = waiter_for


def waiter_for(policy, runtime, device):
    waiter = _unplanted_waiter_for(policy, runtime, device)
    unplanted_wait = waiter.wait

    def wait(event):
        unplanted_wait(event)
        runtime.sleep({LATE_S})

    waiter.wait = wait
    return waiter
""",
)
