"""The technique as its original does it: the baseline of question 5.

Written from the technique's description, on the runtime seam, so that it runs on the
virtual device too: a generator that switches streams, ``wait_stream``, one
``.to("cpu", non_blocking=True)`` per tensor, a new blocking event per output, a loop
over all requests afterwards. The library's preset ``ORIGINAL`` must make the same
device calls in the same order, which a test checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from asyncout.outputs import SamplingMaskLists
from asyncout.runtime import Runtime, runtime_of


@contextmanager
def stream(runtime: Runtime, to_stream: Any, from_stream: Any) -> Iterator[None]:
    """Make one stream current for a block, and the other after it."""
    try:
        runtime.set_stream(to_stream)
        yield
    finally:
        runtime.set_stream(from_stream)


def copy_to_array(tensor: torch.Tensor) -> np.ndarray:
    """Enqueue a copy and give the host array."""
    return tensor.to("cpu", non_blocking=True).numpy()


class OriginalOutput:
    """One step's results on their way to the host."""

    def __init__(
        self, runner_output: Any, sampled: Any, counts: torch.Tensor, main: Any, copy: Any
    ) -> None:
        runtime = runtime_of(main)
        self.device = main.device
        self.runtime = runtime
        self.runner_output = runner_output
        self.sources = (sampled, counts)
        self.event = runtime.new_event(blocking=True)
        with stream(runtime, copy, main):
            copy.wait_stream(main)
            self.ids = copy_to_array(sampled.sampled_token_ids)
            self.logprobs = None
            if sampled.logprobs_tensors is not None:
                self.logprobs = sampled.logprobs_tensors.to_cpu_nonblocking()
            self.nans = None
            if sampled.num_nans is not None:
                self.nans = copy_to_array(sampled.num_nans)
            self.counts = copy_to_array(counts)
            self.masks = None
            if sampled.sampling_mask_tensors is not None:
                masks = sampled.sampling_mask_tensors
                self.masks = (
                    copy_to_array(masks.token_ids),
                    copy_to_array(masks.packed_mask),
                    copy_to_array(masks.counts),
                )
            self.prompts = {
                request: None if part is None else part.to_cpu_nonblocking()
                for request, part in runner_output.prompt_logprobs_dict.items()
            }
            self.event.record(copy)

    def get_output(self) -> Any:
        """Wait, convert and fill in."""
        self.event.synchronize()
        output = self.runner_output
        rows = self.ids.tolist()
        counts = self.counts.tolist()
        for row, count in zip(rows, counts, strict=True):
            del row[count:]
        output.sampled_token_ids = rows
        if self.nans is not None:
            nans = self.nans.tolist()
            output.num_nans_in_logits = {
                request: nans[index] for index, request in enumerate(output.req_ids)
            }
        if self.masks is not None:
            output.sampling_masks = self._unpack_masks(counts)
        if self.logprobs is not None:
            output.logprobs = self.logprobs.tolists()
        output.prompt_logprobs_dict = self.prompts
        return output

    def _unpack_masks(self, counts: list[int]) -> SamplingMaskLists:
        """Read the masks row by row."""
        assert self.masks is not None
        masks = self.sources[0].sampling_mask_tensors
        ids, packed, allowed = self.masks
        parts, offsets, boundaries = [], [0], [0]
        for request, count in enumerate(counts):
            for position in range(count):
                row = request * masks.rows_per_request + position
                number = int(allowed[row])
                if number > ids.shape[1]:
                    bits = np.unpackbits(packed[row], count=masks.vocab_size, bitorder="little")
                    parts.append(np.flatnonzero(bits).astype(np.int32))
                else:
                    parts.append(ids[row, :number])
                offsets.append(offsets[-1] + number)
            boundaries.append(boundaries[-1] + count)
        flat = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return SamplingMaskLists(flat, np.array(offsets, np.int64), boundaries)


class OriginalStepTiming:
    """Four new timing events a step, read after one synchronisation."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.steps: list[list[Any]] = []

    def step(self) -> None:
        """Record the four events of a step, with nothing between them."""
        self.steps.append([self._mark() for _ in range(4)])

    def _mark(self) -> Any:
        event = self.runtime.new_event(timing=True)
        event.record()
        return event

    def samples(self) -> list[tuple[float, float]]:
        """Give forward and drafter milliseconds of each step."""
        self.steps[-1][-1].synchronize()
        return [(a.elapsed_time(b), c.elapsed_time(d)) for a, b, c, d in self.steps]
