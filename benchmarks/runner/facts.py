"""What this machine is, as plain dicts; what cannot be read is left out.

The collectors are the library's own, which its doctor needs too.
"""

from __future__ import annotations

from asyncout.doctor.facts import (
    Facts,
    collect,
    gpu_facts,
    host_facts,
    parse_nvidia_smi,
    throttle_counters,
    throttle_reasons,
    torch_facts,
)

__all__ = [
    "Facts",
    "collect",
    "gpu_facts",
    "host_facts",
    "parse_nvidia_smi",
    "throttle_counters",
    "throttle_reasons",
    "torch_facts",
]
