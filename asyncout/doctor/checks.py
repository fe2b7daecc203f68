"""Questions with a yes or no: does this box do what asynchronous copies rest on?

Each looks at what happens, not at what a flag says. Where it can it asks the device whether
its work is done rather than comparing times, so that a slow host does not change the answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from asyncout.doctor.box import Box
from asyncout.landing import ALIGNMENT, Block
from asyncout.runtime import Event

#: Kernel time in front of what is looked at, seconds: a hundred times what the calls behind
#: it take on a slow host.
BACKLOG_S = 20e-3

#: Bytes of the copy that must not hold the host.
COPY_BYTES = 64 << 10

#: Copies of the batch whose bytes are compared: more than the driver is given one by one.
BATCH = 8

#: Share of a wait's time that a thread which sleeps burns at most; one that spins burns all.
MOST_CPU_ASLEEP = 0.5


@dataclass(frozen=True)
class Check:
    """The answer to one question.

    Attributes
    ----------
    name : str
        Key of the answer in the JSON.
    question : str
    holds : bool
    detail : str
        What was seen.
    """

    name: str
    question: str
    holds: bool
    detail: str


def run_checks(box: Box) -> dict[str, Check]:
    """Answer every question, by name, in the order in which they are shown."""
    found = [
        pinned_memory(box),
        asynchronous_copy(box),
        blocking_flag(box),
        batched_call(box),
        separate_stream(box),
    ]
    return {check.name: check for check in found}


def pinned_memory(box: Box) -> Check:
    """Ask for page-locked memory and look whether it is."""
    host = box.runtime.empty_host((COPY_BYTES,), torch.uint8, True)
    holds = box.runtime.is_pinned(host)
    return Check(
        "pinned_memory",
        "is pinned memory really had?",
        holds,
        "what was asked for as pinned memory is " + ("pinned" if holds else "pageable"),
    )


def asynchronous_copy(box: Box) -> Check:
    """Enqueue a copy behind kernels and look whether they still run when the call returns."""
    source = box.memory(COPY_BYTES)
    host = box.runtime.empty_host((COPY_BYTES,), torch.uint8, True)
    host.copy_(source, non_blocking=True)  # the first copy of a process may set things up
    kernels_done = _behind_backlog(box)
    host.copy_(source, non_blocking=True)
    held = kernels_done.query()
    box.synchronize()
    return Check(
        "asynchronous_copy",
        "does a copy return before it is done?",
        not held,
        "the call returned when the kernels ahead of the copy " + ("were done" if held else "ran"),
    )


def blocking_flag(box: Box) -> Check:
    """Wait for an event that was made to sleep on, and count the CPU time."""
    shares = []
    for event in (
        box.runtime.new_event(blocking=True),
        box.runtime.new_pooled_event(box.main.device, blocking=True),
    ):
        box.synchronize()
        box.busy(BACKLOG_S)
        event.record(box.main)
        begin, cpu = box.runtime.clock(), box.cpu_clock()
        event.synchronize()
        shares.append((box.cpu_clock() - cpu) / (box.runtime.clock() - begin))
    return Check(
        "blocking_flag",
        "does a thread that waits for a blocking event sleep?",
        max(shares) <= MOST_CPU_ASLEEP,
        f"it burnt {shares[0]:.0%} of its wait's time, {shares[1]:.0%} on a pooled event",
    )


def batched_call(box: Box) -> Check:
    """Look whether there is a call for many copies, and compare the bytes that it brings."""
    part = COPY_BYTES // BATCH
    sources = list(box.memory(COPY_BYTES).split(part))
    room = box.runtime.empty_host((BATCH * (part + ALIGNMENT),), torch.uint8, True)
    block = Block(room, deque())
    offsets = [index * (part + ALIGNMENT) for index in range(BATCH)]
    arrived = box.runtime.new_pooled_event(box.main.device)
    submit = box.runtime.submitter(box.main, box.copy)
    submit(sources, [part] * BATCH, offsets, block, arrived)
    arrived.synchronize()
    expected = [source.cpu() for source in sources]
    right = all(
        torch.equal(block.memory[offset : offset + part], bytes_)
        for offset, bytes_ in zip(offsets, expected, strict=True)
    )
    if not right:
        detail = "the bytes of a batch of copies are not those that were sent"
    elif box.has_batched_call:
        detail = "a step's copies are one call, and bring the right bytes"
    else:
        detail = "the driver has none: each copy of a step is a call of its own"
    return Check(
        "batched_call",
        "is the batched copy call there?",
        right and box.has_batched_call,
        detail,
    )


def separate_stream(box: Box) -> Check:
    """Look whether the copy stream's work is done while the main stream's still runs."""
    copied = box.runtime.new_event()
    box.synchronize()
    kernels_done = _behind_backlog(box)
    copied.record(box.copy)
    copied.synchronize()
    overlaps = not kernels_done.query()
    box.synchronize()
    same = box.main == box.copy
    if same:
        detail = "the copy stream is the main stream under another name"
    elif overlaps:
        detail = "the copy stream was done while the main stream still ran"
    else:
        detail = "the copy stream waited for the main stream, although it is another"
    return Check(
        "separate_stream",
        "is the copy stream really another stream?",
        overlaps and not same,
        detail,
    )


def _behind_backlog(box: Box) -> Event:
    """Enqueue kernels, and give an event that passes when they are done."""
    event = box.runtime.new_event()
    box.busy(BACKLOG_S)
    event.record(box.main)
    return event
