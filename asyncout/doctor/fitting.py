"""From short measurements to a cost profile of this box."""

from __future__ import annotations

from asyncout.doctor.lines import fit_line, fit_slope
from asyncout.doctor.speeds import NEW_BYTES, SMALL_BYTES, Speeds
from asyncout.virtual import CostProfile
from asyncout.virtual.memory import PAGE_BYTES


def fit_profile(speeds: Speeds, base: CostProfile, machine: str, source: str) -> CostProfile:
    """Fit a cost profile.

    Parameters
    ----------
    speeds : Speeds
    base : CostProfile
        Gives what was not measured: without pinned copies, their bandwidth and a copy's
        latency and call.
    machine, source : str
        What the profile says of itself.
    """
    found: dict[str, float] = {f"call_{kind}_s": cost for kind, cost in speeds.calls.items()}
    latency = base.copy_latency_s
    if speeds.pinned_to_host:
        latency, per_byte = fit_line(speeds.pinned_to_host)
        found["d2h_pinned_bytes_per_s"] = 1 / per_byte
    if speeds.pinned_to_device:
        found["h2d_pinned_bytes_per_s"] = 1 / fit_slope(speeds.pinned_to_device, latency)
    call = found.get("call_copy_s", base.call_copy_s)
    found |= _pageable(speeds, latency + call)
    kernel, per_byte = fit_line(speeds.kernels)
    block, spin = speeds.waits["block"], speeds.waits["spin"]
    return base.replace(
        machine=machine,
        source=source,
        copy_latency_s=latency,
        h2d_pageable_bytes_per_s=1 / fit_slope(speeds.pageable_to_device, latency + call),
        kernel_s=kernel,
        kernel_bytes_per_s=1 / per_byte,
        block_wake_s=max(0.0, block.late_s),
        # The model's wait asks once before it sleeps.
        block_cpu_s=max(0.0, block.cpu_s - speeds.calls["query"]),
        spin_wake_s=max(0.0, spin.late_s),
        sleep_late_s=max(0.0, speeds.sleep_late_s),
        pageable_batch_holds=speeds.pageable_batch_holds,
        **found,
    )


def _pageable(speeds: Speeds, pinned_s: float) -> dict[str, float]:
    """Fit copies into pageable memory, beside what a pinned copy takes without its bytes."""
    fixed, per_byte = fit_line(speeds.pageable_to_host)
    if fixed < pinned_s:  # their calls, in a row, are warmer than those that were timed alone
        per_byte = fit_slope(speeds.pageable_to_host, pinned_s)
    copy = max(0.0, fixed - pinned_s)
    made = speeds.new_memory_s - pinned_s - copy - NEW_BYTES * per_byte
    _, per_copy = fit_line(speeds.pageable_batches)
    return {
        "d2h_pageable_bytes_per_s": 1 / per_byte,
        "pageable_copy_s": copy,
        "pageable_batch_copy_s": max(0.0, per_copy - SMALL_BYTES * per_byte),
        "new_page_s": max(0.0, made * PAGE_BYTES / NEW_BYTES),
    }
