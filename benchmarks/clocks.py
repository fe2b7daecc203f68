"""Whether a GPU was held back during a run, by what it said of its clocks before and after."""

from __future__ import annotations

from benchmarks.conditions import Judgement
from benchmarks.runner.facts import Facts, throttle_counters, throttle_reasons

#: Share of the time between two readings in which the GPU may have been held back. A
#: counter that ticks once when a clock changes stays far below.
MAX_THROTTLED_SHARE = 0.01

#: The counter of a GPU that draws all the power it may. Matrix products do that by themselves, in
#: every arm, and clocks that differ by some per cent from round to round cancel in the ratios.
POWER_LIMIT = "sw_power_cap"

#: Least clock of the second of two readings under load, as a share of the first; boost
#: clocks move by some per cent with temperature alone.
MIN_CLOCK_SHARE = 0.9


def judge_clocks(before: Facts, after: Facts) -> Judgement:
    """Judge a run by what the GPU said of its clocks before and after.

    Parameters
    ----------
    before, after : dict of str to str
        As :func:`benchmarks.runner.facts.gpu_facts` gives them; what is absent is not judged.
        The driver's counters, which also know of throttling that had ended when the second
        reading was taken, need the seconds between the two: ``after["seconds"]``.
    """
    reasons = []
    for when, facts in (("before", before), ("after", after)):
        if active := throttle_reasons(facts):
            reasons.append(f"the GPU was held back {when} the run ({', '.join(active)})")
    for name, share in _shares(before, after).items():
        if name != POWER_LIMIT and share > MAX_THROTTLED_SHARE:
            reasons.append(f"the GPU was held back for {share:.0%} of the run ({name})")
    first, second = _clock_under_load(before), _clock_under_load(after)
    if first and second and second < MIN_CLOCK_SHARE * first:
        reasons.append(f"the clock under load fell from {first:.0f} to {second:.0f} MHz")
    return Judgement(tuple(reasons))


def share_at_power_limit(before: Facts, after: Facts) -> float:
    """Give the share of a run in which the GPU drew all the power it may; 0 where none says."""
    return _shares(before, after).get(POWER_LIMIT, 0.0)


def _shares(before: Facts, after: Facts) -> dict[str, float]:
    """Give the share of a run that each of the driver's counters grew by."""
    number, earlier = after.get("seconds", ""), throttle_counters(before)
    if not number.isdigit() or not int(number):
        return {}
    return {
        name: (microseconds - earlier.get(name, microseconds)) * 1e-6 / int(number)
        for name, microseconds in throttle_counters(after).items()
    }


def _clock_under_load(facts: Facts) -> float | None:
    """Give the SM clock in MHz; None where it is absent or that of an idle GPU."""
    number = facts.get("clock_sm", "").partition(" ")[0]
    if "idle" in facts.get("clock_reasons", "") or not number.isdigit():
        return None
    return float(number)
