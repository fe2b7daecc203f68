"""What single calls cost the host when its code is cold: ``python -m benchmarks.calls``.

An engine makes each of these once a step, with a wait between, and then they cost
several times what a tight loop shows. The library's choices (one driver call for few
or many copies, pooled events, the least timer slack) come from this table. Needs a GPU;
``--save FILE`` keeps the table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from asyncout import hot
from asyncout.cuda_driver import DriverEvent, DriverSubmit, driver, submitter
from asyncout.landing import BlockPool
from asyncout.precise_sleep import precise_sleep
from benchmarks import loops
from benchmarks.devices import CudaDevice, NoDeviceError, cuda_device
from benchmarks.runner import facts, machine

#: Samples of each call, and the first ones that do not count.
SAMPLES, WARM_UP = 120, 20

#: Copies of a step: a small decode's, one with logprobs, one with 16 prompts.
COPY_COUNTS = (2, 6, 48)

#: Bytes of each copy.
COPY_BYTES = 4096

#: Sleeps whose lateness is measured, seconds.
SLEEPS_S = (1e-3, 5e-3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; give the exit status: 1 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--save", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        device = cuda_device()
    except NoDeviceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = facts.collect()
    lines = [
        f"{machine.default_name(found)}: {found.get('gpu')}, torch {torch.__version__}",
        "host time of one call after the thread has slept 1 ms, µs: median [10 %, 90 %]",
        *(_line(name, loops.cold_call, device, call) for name, call in _calls(device)),
        "",
        "how late a sleep ends, µs: median [10 %, 90 %]",
        *(_line(name, _lateness, seconds, sleep) for name, seconds, sleep in _sleeps()),
    ]
    text = "\n".join(lines)
    print(text)
    if options.save is not None:
        options.save.write_text(text + "\n", encoding="utf-8")
    return 0


def _line(name: str, sample: Callable[..., float], *arguments: Any) -> str:
    with loops.no_collector():
        values = [sample(*arguments) * 1e6 for _ in range(SAMPLES + WARM_UP)][WARM_UP:]
    tenths = quantiles(values, n=10)
    return f"  {name:<52} {median(values):8.1f} [{tenths[0]:.1f}, {tenths[-1]:.1f}]"


def _calls(device: CudaDevice) -> list[tuple[str, Callable[[], Any]]]:
    main_stream, copy = device.main, device.copy
    kept: Any = torch.cuda.Event(blocking=True)
    kept.record(main_stream)
    pooled = DriverEvent(device.main.device.index, blocking=False)
    pooled.record(main_stream)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("nothing", lambda: None),
        ("new torch event and its record", lambda: _new_event(main_stream)),
        ("record of a kept torch event", lambda: kept.record(main_stream)),
        ("record of a pooled driver event", lambda: pooled.record(main_stream)),
        ("stream.wait_stream", lambda: copy.wait_stream(main_stream)),
        ("record and wait of a kept driver event", lambda: _follow(pooled, main_stream, copy)),
        ("query of a driver event that has passed", pooled.query),
        ("torch.cuda.is_current_stream_capturing", torch.cuda.is_current_stream_capturing),
        (
            "torch.empty, 64 KiB pinned",
            lambda: torch.empty(65536, dtype=torch.uint8, pin_memory=True),
        ),
        ("lease of a pooled 64 KiB block", _leaser(device)),
    ]
    for count in COPY_COUNTS:
        calls += _copies(device, count)
    return calls


def _new_event(stream: Any) -> None:
    torch.cuda.Event(blocking=True).record(stream)


def _follow(event: DriverEvent, main: Any, copy: Any) -> None:
    event.record(main)
    event.wait(copy)


def _leaser(device: CudaDevice) -> Callable[[], Any]:
    pool = BlockPool(device.runtime, pinned=True)
    return lambda: pool.lend(65536)


def _copies(device: CudaDevice, count: int) -> list[tuple[str, Callable[[], Any]]]:
    sources = [torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(count)]
    offsets = [index * COPY_BYTES for index in range(count)]
    sizes = [COPY_BYTES] * count
    lease = BlockPool(device.runtime, pinned=True).lend(count * COPY_BYTES)
    block = lease.block
    assert block is not None
    views = list(block.memory[: count * COPY_BYTES].view(count, COPY_BYTES))
    packed = torch.zeros(count * COPY_BYTES, dtype=torch.uint8, device="cuda")
    handle = device.copy.cuda_stream  # type: ignore[attr-defined]
    one = driver().copy_to_host
    copies_only = DriverSubmit(None, None, device.copy)
    event = DriverEvent(device.main.device.index, blocking=False)
    submit = submitter(device.main, device.copy)
    whole_step: list[tuple[str, Callable[[], Any]]] = [
        (
            f"{count} copies: with wait and event, in Python",
            partial(submit, sources, sizes, offsets, block, event),
        )
    ]
    if submit.lane is not None:
        pool = BlockPool(device.runtime, pinned=True)
        landing = hot.COMPILED.land(submit.lane, pool.lend, None, sources)
        whole_step.append(
            (f"{count} copies: with wait and event, compiled", partial(landing.enqueue, event))
        )

    def to_each() -> None:
        with torch.cuda.stream(device.copy):  # type: ignore[arg-type]
            for source in sources:
                source.to("cpu", non_blocking=True)

    def foreach() -> None:
        with torch.cuda.stream(device.copy):  # type: ignore[arg-type]
            torch._foreach_copy_(views, sources, non_blocking=True)

    def one_by_one() -> None:
        for source, size, offset in zip(sources, sizes, offsets, strict=True):
            one(block.address + offset, source.data_ptr(), size, handle)

    def in_one_graph() -> None:
        graph.replay()

    def concatenated() -> None:
        with torch.cuda.stream(device.copy):  # type: ignore[arg-type]
            block.memory[: count * COPY_BYTES].copy_(torch.cat(sources), non_blocking=True)

    foreach()
    device.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=device.copy):  # type: ignore[arg-type]
        torch._foreach_copy_(views, sources, non_blocking=True)
    torch.cuda.set_stream(device.main)  # type: ignore[arg-type]

    return [
        (f"{count} copies: .to each", to_each),
        (f"{count} copies: torch._foreach_copy_ into views", foreach),
        (f"{count} copies: cuMemcpyDtoHAsync each", one_by_one),
        (
            f"{count} copies: cuMemcpyBatchAsync",
            lambda: copies_only(sources, sizes, offsets, block, None),
        ),
        (f"{count} copies: a captured graph of them", in_one_graph),
        (f"{count} copies: torch.cat and one copy", concatenated),
        (
            f"{count} copies: packed already, one copy",
            lambda: one(block.address, packed.data_ptr(), count * COPY_BYTES, handle),
        ),
        *whole_step,
        *_bindings(count, sources, offsets, sizes, block, handle),
    ]


def _bindings(
    count: int, sources: Any, offsets: Any, sizes: Any, block: Any, handle: int
) -> list[tuple[str, Callable[[], Any]]]:
    """Give the same through cuda-bindings, where it is installed."""
    try:
        from cuda.bindings import runtime as cudart
    except ImportError:
        return []
    attributes = cudart.cudaMemcpyAttributes()
    attributes.srcAccessOrder = cudart.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream

    def call() -> None:
        cudart.cudaMemcpyBatchAsync(
            [block.address + offset for offset in offsets],
            [source.data_ptr() for source in sources],
            sizes,
            count,
            [attributes],
            [0],
            1,
            handle,
        )

    return [(f"{count} copies: cudaMemcpyBatchAsync of cuda-bindings", call)]


def _sleeps() -> list[tuple[str, float, Callable[[float], None]]]:
    return [
        (f"{name}, {seconds * 1e3:g} ms", seconds, sleep)
        for seconds in SLEEPS_S
        for name, sleep in (("time.sleep", time.sleep), ("least timer slack", precise_sleep))
    ]


def _lateness(seconds: float, sleep: Callable[[float], None]) -> float:
    begin = time.perf_counter()
    sleep(seconds)
    return time.perf_counter() - begin - seconds


if __name__ == "__main__":
    sys.exit(main())
