"""From short measurements to a cost profile of this box."""

from __future__ import annotations

from asyncout.doctor.lines import fit_line, fit_slope
from asyncout.doctor.speeds import Speeds
from asyncout.virtual import CostProfile


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
    held = latency + found.get("call_copy_s", base.call_copy_s)
    kernel, per_byte = fit_line(speeds.kernels)
    block, spin = speeds.waits["block"], speeds.waits["spin"]
    return base.replace(
        machine=machine,
        source=source,
        copy_latency_s=latency,
        d2h_pageable_bytes_per_s=1 / fit_slope(speeds.pageable_to_host, held),
        h2d_pageable_bytes_per_s=1 / fit_slope(speeds.pageable_to_device, held),
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
