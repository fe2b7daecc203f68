"""What a machine is, as a plain dict of texts; what cannot be read is left out, never guessed.

One small collector a topic: :mod:`~asyncout.doctor.facts.host`,
:mod:`~asyncout.doctor.facts.gpu` (through NVML or ``nvidia-smi``) and
:mod:`~asyncout.doctor.facts.software`. None of them initialises CUDA in the calling process.
"""

from asyncout.doctor.facts.gpu import gpu_facts, throttle_counters, throttle_reasons
from asyncout.doctor.facts.host import host_facts
from asyncout.doctor.facts.nvidia_smi import parse_nvidia_smi
from asyncout.doctor.facts.reading import Facts
from asyncout.doctor.facts.software import torch_facts

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


def collect() -> Facts:
    """Read every fact that this machine gives."""
    return {**host_facts(), **torch_facts(), **gpu_facts()}
