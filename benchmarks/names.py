"""Workloads of each question, by the names that parameters, pages and reports show.

Apart from everything that imports torch: asv lists the benchmarks in many processes.
A name that is only in the full list is n/a in quick mode.
"""

from __future__ import annotations

import itertools

from benchmarks.effects import balanced_part

#: Question 1: small, middling and large outputs.
STREAMS = (
    "decode R=1 K=0",
    "decode R=256 K=20",
    "decode R=1024 K=20",
    "prompt logprobs 16 x 1024",
    "sampling masks R=256",
    "pooling 256 x 4096 fp32",
    "routed experts 8192 x 60 x 8",
    "logits 256 x 128256 fp32",
)
STREAMS_QUICK = ("decode R=256 K=20", "routed experts 8192 x 60 x 8", "logits 256 x 128256 fp32")

#: Question 1: the same behind real kernels, and what such a workload's name ends with.
REAL_KERNELS = ", real kernels"
STREAMS_REAL = (
    "decode R=256 K=20" + REAL_KERNELS,
    "sampling masks R=256" + REAL_KERNELS,
    "routed experts 8192 x 60 x 8" + REAL_KERNELS,
    "logits 256 x 128256 fp32" + REAL_KERNELS,
)
STREAMS_REAL_QUICK = STREAMS_REAL[2:3]

#: Question 2: bytes of one copy.
SIZES = {
    "64 B": 64,
    "4 KiB": 4 << 10,
    "64 KiB": 64 << 10,
    "1 MiB": 1 << 20,
    "16 MiB": 16 << 20,
    "256 MiB": 256 << 20,
}
SIZES_QUICK = ("4 KiB", "1 MiB", "16 MiB")

#: Question 3: seconds of the wait.
WAITS = {"1 ms": 1e-3, "5 ms": 5e-3, "20 ms": 20e-3}
WAITS_QUICK = ("1 ms", "5 ms")

#: Question 3: mean seconds of waits whose lengths differ by up to a tenth.
JITTERED_WAITS = {"1 ms, 10 % jitter": 1e-3, "5 ms, 10 % jitter": 5e-3}
JITTERED_WAITS_QUICK = ("1 ms, 10 % jitter",)

#: Question 3: seconds of waits of which each 16th is the longer, as a prefill among decode steps.
PREFILL_WAITS = {"1 ms, each 16th 20 ms": (1e-3, 20e-3)}
PREFILL_EVERY = 16

#: Question 3: all waits of which a sample has many, of several lengths.
VARIED_WAITS = (*JITTERED_WAITS, *PREFILL_WAITS)

#: Question 3: kernel seconds of a step in short runs of a pipelined loop, behind an idle device.
BURSTS = {"bursts of 10 steps of 2 ms": 2e-3, "bursts of 10 steps of 10 ms": 10e-3}
BURSTS_QUICK = tuple(BURSTS)[:1]

#: Question 3: what goes on beside the waiting thread.
LAUNCHING = "a thread that launches"
COMPUTING = "a thread that computes"
WAITING = "three more that wait"
LOADED = "every core busy"
NEIGHBOURS = (LAUNCHING, COMPUTING, WAITING, LOADED)

#: Question 4: the factors of its blocks; in each block all policies are measured.
FACTORIAL_WORKLOADS = (
    "decode R=1 K=0",
    "decode R=64 K=20",
    "decode R=256 K=20",
    "decode R=1024 K=0",
    "decode R=1024 K=20",
    "speculative R=256 W=4 K=20",
    "prompt logprobs 16 x 1024",
    "sampling masks R=256",
    "pooling 256 x 4096 fp32",
    "pooling 256 x 4096 bf16",
    "pooling 64 ragged",
    "routed experts 8192 x 60 x 8",
    "logits 256 x 128256 fp32",
)
LOOPS = ("pipelined", "synchronous")
STEP_LENGTHS = {"0.5 ms": 0.5e-3, "2 ms": 2e-3, "10 ms": 10e-3, "30 ms": 30e-3}


def block(workload: str, loop: str, length: str) -> str:
    """Name a block of question 4."""
    return f"{workload}, {loop}, {length}"


def block_parts(name: str) -> tuple[str, str, str]:
    """Give workload, loop and step length of a block's name."""
    workload, loop, length = name.rsplit(", ", 2)  # a workload's name may have commas
    return workload, loop, length


#: Question 4: every block.
BLOCKS = tuple(
    block(*parts) for parts in itertools.product(FACTORIAL_WORKLOADS, LOOPS, STEP_LENGTHS)
)

#: Question 4: the blocks of the full mode, in which each level comes as often as others; how
#: many, and the seed of their choice.
PART, SEED = 24, 20_251_201
BLOCKS_FULL = tuple(
    block(*cell)
    for cell in balanced_part(
        {"workload": FACTORIAL_WORKLOADS, "loop": LOOPS, "length": tuple(STEP_LENGTHS)}, PART, SEED
    )
)
BLOCKS_QUICK = (
    block("decode R=256 K=20", "pipelined", "2 ms"),
    block("routed experts 8192 x 60 x 8", "synchronous", "0.5 ms"),
)

#: Question 4: a policy that changes a step by less is neither faster nor slower to an
#: engine, and what few rounds say of such changes differs from run to run.
LEAST_EFFECT = 0.01

#: Question 4: each factor's levels; the first is what the others are compared with.
FACTORS = {
    "streams": ("single", "dual"),
    "memory": ("pageable", "pinned"),
    "wait": ("block", "spin", "hybrid"),
    "copies": ("per_tensor", "batched"),
}

#: Question 4: the levels of the original's preset.
ORIGINAL_LEVELS = ("dual", "pinned", "block", "per_tensor")

#: Question 6: what goes on beside an output's copy.
OFFLOADS = ("decode R=256 K=20", "pooling 256 x 4096 fp32")

#: Question 5: outputs that are constructed and read. Masks at the sizes for which an engine's
#: unpacking was reported to take 17 ms (64) and 130 ms (512): vLLM's issue 54901.
OUTPUTS = (
    "decode R=1 K=0",
    "decode R=256 K=20",
    "decode R=1024 K=0",
    "speculative R=1024 W=4 K=0",
    "sampling masks R=64",
    "sampling masks R=64, some wide",
    "sampling masks R=256",
    "sampling masks R=256, some wide",
    "sampling masks R=512",
    "sampling masks R=512, some wide",
    "prompt logprobs 16 x 1024",
)
OUTPUTS_QUICK = ("decode R=1 K=0", "decode R=256 K=20", "prompt logprobs 16 x 1024")

#: Question 5: steps whose results are waited for at once; seconds of their kernels.
LATENCY_STEPS = {
    "decode R=256 K=20, 1 ms steps": 1e-3,
    "decode R=256 K=20, 2 ms steps": 2e-3,
}
LATENCY_STEPS_QUICK = ("decode R=256 K=20, 1 ms steps",)

#: Question 5: outputs whose copies are timed on the device.
DEVICE_OUTPUTS = ("decode R=256 K=20, on the device", "prompt logprobs 16 x 1024, on the device")

#: Question 5: an output constructed behind so many seconds of kernels.
BEHIND = {"decode R=256 K=20, behind 50 ms": 50e-3}

#: Question 5: the one workload of what does not depend on one.
ONE_STEP = "one step"

#: Question 5: tensors that are new in each step.
SMALL_SOURCES = "6 x 8 KiB, read a step later"
LARGE_SOURCES = "128 MiB, read a step later"
LATE_READER = "128 MiB, read 4 steps later"
FULL_MEMORY = "128 MiB, read a step later, memory full"
KEEPING = (SMALL_SOURCES, LARGE_SOURCES, LATE_READER, FULL_MEMORY)
