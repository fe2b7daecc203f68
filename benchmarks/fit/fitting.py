"""Costs from observations: one cost after the other, each from the rows that tell it best."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from statistics import median

import numpy as np

from asyncout.doctor.lines import fit_line
from asyncout.virtual import CostProfile
from asyncout.virtual.memory import NEW_FROM_BYTES, PAGE_BYTES
from benchmarks import names
from benchmarks.fit.observed import Observed
from benchmarks.fit.twin import Twin
from benchmarks.grids import library, memory, waits

#: Which calls carry the host time of an output's construction, in groups that share a scale.
#: What was measured is a sum, cold and with Python around the calls: the first group is there
#: once or more for each tensor, the second once for each output, the third only where copies are
#: made one by one. What question 2's warm loop makes too (record, query) keeps its cost.
CALL_GROUPS = (("copy",), ("wait_event",), ("new_event", "set_stream"))

#: Two policies of question 4 that differ in memory alone, pageable and pinned. Where neither
#: hides the copies (one stream) nor sleeps, the difference is what the copies take; the host's
#: own work, which the model does not know, is in both.
EXPOSED_BATCHES = ("single-pageable-spin-batched", "single-pinned-spin-batched")

#: Probing costs: one of them in plain numbers, all else nothing, so that what the twin then
#: takes is a count. In seconds and bytes per second, small enough for exact sums.
UNIT_S, UNIT_BYTES_PER_S, NO_LIMIT = 1e-6, 1e12, 1e21


def fit(
    observed: Observed,
    base: CostProfile,
    twin: Twin,
    *,
    workloads: Collection[str] = names.STREAMS,
    sizes: Collection[str] = tuple(names.SIZES),
    loops: Collection[str] = names.FACTORIAL_WORKLOADS,
) -> CostProfile:
    """Fit a cost profile.

    Parameters
    ----------
    observed : Observed
    base : CostProfile
        Gives what no row tells: copies to the device, small kernels, sleeps, and what single
        calls cost in proportion to each other.
    twin : Twin
        Counts a step's calls, copies and bytes.
    workloads, sizes, loops : collection of str
        Rows of questions 1, 2 and 4 (of its workloads) that may be looked at; the others are kept
        for validation.

    Returns
    -------
    CostProfile
    """
    latency, bytes_per_s = _copies(observed, twin, base, workloads, sizes)
    profile = base.replace(
        machine=observed.machine,
        source=f"fitted from {observed.machine}'s results at {observed.commit[:8]} "
        f"(python -m benchmarks.fit); what they do not tell is of {base.machine}: copies to the "
        "device, small kernels, sleeps",
        copy_latency_s=latency,
        d2h_pinned_bytes_per_s=bytes_per_s,
    )
    profile = _calls(observed, twin, profile)
    profile = _waits(observed, twin, profile)
    profile = _pageable(observed, twin, profile, sizes)
    return _pageable_batches(observed, twin, profile, loops)


def fitted_name(machine: str) -> str:
    """Name the shipped profile that was fitted from a machine's results."""
    return f"{machine}-fitted"


def fitted_commit(profile: CostProfile) -> str:
    """Give the short hash of the commit that a profile's source names; "" if it is not fitted."""
    found = re.match(r"fitted from .+'s results at ([0-9a-f]+) ", profile.source)
    return found[1] if found else ""


def _copies(
    observed: Observed,
    twin: Twin,
    base: CostProfile,
    workloads: Collection[str],
    sizes: Collection[str],
) -> tuple[float, float]:
    """Give a copy's latency and its bandwidth.

    From the copies alone of question 1, and from the slope of question 2: what its calls and
    its wait cost beside the copy is a third unknown, which only those rows have.
    """
    per_copy = base.replace(copy_latency_s=UNIT_S, d2h_pinned_bytes_per_s=NO_LIMIT)
    per_byte = base.replace(copy_latency_s=0.0, d2h_pinned_bytes_per_s=UNIT_BYTES_PER_S)
    rows, seconds = [], []
    for workload, alone in observed.alone.items():
        if workload in workloads:
            with twin.under(per_copy):
                copies = twin.copies_alone(workload) / UNIT_S
            with twin.under(per_byte):
                num_bytes = twin.copies_alone(workload) * UNIT_BYTES_PER_S
            rows.append((copies, num_bytes, 0.0))
            seconds.append(alone)
    for (size, kind), time in observed.copies.items():
        if kind == memory.PINNED and size in sizes:
            rows.append((0.0, float(names.SIZES[size]), 1.0))
            seconds.append(time)
    latency, per_byte_s, _ = _least_relative_errors(rows, seconds)
    return max(0.0, latency), 1 / per_byte_s


def _pageable(
    observed: Observed, twin: Twin, profile: CostProfile, sizes: Collection[str]
) -> CostProfile:
    """Fit what copies of their own into pageable memory cost: each, by the byte, by new page.

    Each copy of question 2 has a destination of its own, which is new memory from some size on.
    Without such a size a new page costs what it does in the base. A copy costs what is left of
    the line's fixed part when the calls around it and a pinned copy's latency are explained.
    """
    times = {
        size: time
        for (size, kind), time in observed.copies.items()
        if kind == memory.PAGEABLE and size in sizes
    }
    new = [size for size in times if names.SIZES[size] >= NEW_FROM_BYTES]
    line = [(float(names.SIZES[size]), time) for size, time in times.items() if size not in new]
    fixed, per_byte = fit_line(line)
    with twin.under(profile.replace(d2h_pageable_bytes_per_s=NO_LIMIT, pageable_copy_s=0.0)):
        explained = twin.copy_time(min(times, key=names.SIZES.__getitem__), memory.PAGEABLE)
    profile = profile.replace(
        d2h_pageable_bytes_per_s=1 / per_byte, pageable_copy_s=max(0.0, fixed - explained)
    )
    if not new:
        return profile
    with twin.under(profile.replace(new_page_s=0.0)):
        added = [
            (times[size] - twin.copy_time(size, memory.PAGEABLE)) * PAGE_BYTES / names.SIZES[size]
            for size in new
        ]
    return profile.replace(new_page_s=max(0.0, median(added)))


def _calls(observed: Observed, twin: Twin, profile: CostProfile) -> CostProfile:
    """Scale the groups of calls so that constructing an output takes as long as it did."""
    scaled = [_costs(profile, kinds) for kinds in CALL_GROUPS]
    nothing = {name: 0.0 for group in scaled for name in group}
    kept = _costs(profile, ("record", "host_allocation", "query"))
    rows, seconds = [], []
    for (workload, arm), time in observed.enqueues.items():
        if arm not in library.POLICIES:
            continue  # the original itself, which is not the library's code
        with twin.under(profile.replace(**nothing)):
            rest = twin.enqueue(workload, arm)
        parts = []
        for group in scaled:
            with twin.under(profile.replace(**{**nothing, **dict.fromkeys(kept, 0.0), **group})):
                parts.append(twin.enqueue(workload, arm))
        rows.append(tuple(parts))
        seconds.append(time - rest)
    scales = _least_relative_errors(rows, seconds)
    return profile.replace(
        **{
            name: max(0.0, scale) * cost
            for scale, group in zip(scales, scaled, strict=True)
            for name, cost in group.items()
        }
    )


def _costs(profile: CostProfile, kinds: Sequence[str]) -> dict[str, float]:
    return {f"call_{kind}_s": getattr(profile, f"call_{kind}_s") for kind in kinds}


def _waits(observed: Observed, twin: Twin, profile: CostProfile) -> CostProfile:
    """Fit how late threads are back: what is left when the rest of the loop is explained.

    The median over the lengths: the model's waits are late by one time, whatever their length.
    """
    prompt = profile.replace(block_wake_s=0.0, spin_wake_s=0.0)
    late: dict[str, list[float]] = {waits.BLOCK: [], waits.SPIN: []}
    cpu = []
    for (length, wait), time in observed.late.items():
        if wait in late:
            with twin.under(prompt):
                late[wait].append(time - twin.late(length, wait))
        if wait == waits.BLOCK:
            cpu.append(observed.burnt[length, wait] * (names.WAITS[length] + time))
    return profile.replace(
        block_wake_s=max(0.0, median(late[waits.BLOCK])),
        spin_wake_s=max(0.0, median(late[waits.SPIN])),
        block_cpu_s=max(0.0, median(cpu) - profile.call_query_s),
    )


def _pageable_batches(
    observed: Observed, twin: Twin, profile: CostProfile, loops: Collection[str]
) -> CostProfile:
    """Fit what each copy of a batch into pageable memory takes: question 4's blocks alone tell.

    From the difference to pinned memory, in shares of the step, as its noise is. Without such
    blocks it is the base's.
    """
    counts, missing = [], []
    for block in dict.fromkeys(block for block, _ in observed.policies):
        measured = [observed.policies.get((block, arm)) for arm in EXPOSED_BATCHES]
        if names.block_parts(block)[0] not in loops or None in measured:
            continue
        pageable, pinned = measured
        slower = []
        for cost in (0.0, UNIT_S):
            with twin.under(profile.replace(pageable_batch_copy_s=cost)):
                times = [twin.policy_step(block, arm) for arm in EXPOSED_BATCHES]
            slower.append(times[0] - times[1])
        copies = round((slower[1] - slower[0]) / UNIT_S)  # none where each is a call of its own
        counts.append(copies / pageable)
        missing.append((pageable - pinned - slower[0]) / pageable)
    if not any(counts):
        return profile
    cost = float(np.dot(counts, missing) / np.dot(counts, counts))
    return profile.replace(pageable_batch_copy_s=max(0.0, cost))


def _least_relative_errors(
    rows: Sequence[tuple[float, ...]], seconds: Sequence[float]
) -> tuple[float, ...]:
    """Solve rows · unknowns = seconds for the least sum of squared relative errors."""
    matrix = np.array(rows) / np.array(seconds)[:, None]
    # Each unknown in its own scale, or bytes and counts are too far apart for the solver.
    scales = np.abs(matrix).max(axis=0)
    solution = np.linalg.lstsq(matrix / scales, np.ones(len(seconds)), rcond=None)[0] / scales
    return tuple(float(value) for value in solution)
