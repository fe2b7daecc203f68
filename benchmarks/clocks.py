"""Whether a GPU was held back during a run, by what it said of its clocks before and after."""

from __future__ import annotations

from benchmarks.conditions import Judgement
from benchmarks.runner.facts import Facts, throttle_counters, throttle_reasons

#: Share of the time between two readings in which the GPU may have been held back. A
#: counter that ticks once when a clock changes stays far below.
MAX_THROTTLED_SHARE = 0.01

#: Least clock of the second of two readings under load, as a share of the first; boost
#: clocks move by some per cent with temperature alone.
MIN_CLOCK_SHARE = 0.9


def judge_clocks(before: Facts, after: Facts, seconds: float | None = None) -> Judgement:
    """Judge a run by what the GPU said of its clocks before and after.

    Parameters
    ----------
    before, after : dict of str to str
        As :func:`benchmarks.runner.facts.gpu_facts` gives them; what is absent is not judged.
    seconds : float, optional
        Between the two readings; needed to judge the driver's counters, which also know
        of throttling that had ended when the second reading was taken.
    """
    reasons = []
    for when, facts in (("before", before), ("after", after)):
        if active := throttle_reasons(facts):
            reasons.append(f"the GPU was held back {when} the run ({', '.join(active)})")
    if seconds:
        earlier = throttle_counters(before)
        for name, microseconds in throttle_counters(after).items():
            share = (microseconds - earlier.get(name, microseconds)) * 1e-6 / seconds
            if share > MAX_THROTTLED_SHARE:
                reasons.append(f"the GPU was held back for {share:.0%} of the run ({name})")
    first, second = _clock_under_load(before), _clock_under_load(after)
    if first and second and second < MIN_CLOCK_SHARE * first:
        reasons.append(f"the clock under load fell from {first:.0f} to {second:.0f} MHz")
    return Judgement(tuple(reasons))


def _clock_under_load(facts: Facts) -> float | None:
    """Give the SM clock in MHz; None where it is absent or that of an idle GPU."""
    number = facts.get("clock_sm", "").partition(" ")[0]
    if "idle" in facts.get("clock_reasons", "") or not number.isdigit():
        return None
    return float(number)
