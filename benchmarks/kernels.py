"""Real kernels for a step: what a decode step of a language model keeps a GPU busy with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Side of a layer's square weight, and rows of its activations: a weight of 128 MiB, more than
#: a large GPU's second-level cache holds, read for 256 requests.
MATRIX, ROWS = 8192, 256

#: Requests, positions and values of the cache that a layer's memory-bound kernel reads: 64 MiB.
CACHE = (ROWS, 128, 1024)

#: Layers that run before one is timed, and that are timed together.
TIMED_LAYERS = 24


class DecodeLoad:
    """A step's kernels: per layer a matrix product, its activation and a pass over a cache.

    Parameters
    ----------
    seconds : float
        About how long the step takes on the device, which is timed here for that.

    Attributes
    ----------
    layers : int
    """

    def __init__(self, seconds: float) -> None:
        options: Any = {"device": "cuda", "dtype": torch.bfloat16}
        self._weight = torch.randn(MATRIX, MATRIX, **options) / MATRIX**0.5
        self._state = torch.randn(ROWS, MATRIX, **options)
        self._cache = torch.randn(CACHE, **options)
        self._product = torch.empty_like(self._state)
        self._read = torch.empty(CACHE[0], CACHE[2], **options)
        self.layers = 1
        self.layers = max(1, round(seconds / self._time()))

    def _time(self) -> float:
        """Time one layer, in seconds, in the middle of many."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(TIMED_LAYERS):
            self()
        start.record()
        for _ in range(TIMED_LAYERS):
            self()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / TIMED_LAYERS

    def __call__(self) -> None:
        """Enqueue the kernels on the current stream."""
        for _ in range(self.layers):
            torch.mm(self._state, self._weight, out=self._product)
            torch.relu_(self._product)
            torch.sum(self._cache, dim=1, out=self._read)

    def captured(self) -> Callable[[], None]:
        """Capture the kernels in a CUDA graph; give what replays it on the current stream."""
        graph = torch.cuda.CUDAGraph()
        self()  # what is made on a first call cannot be made in a capture
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self()

        def replay(_kept: DecodeLoad = self) -> None:  # a graph keeps none of what it works on
            graph.replay()

        return replay
