"""What a step brings to the host, as far as copies care: bytes and tensors."""

from __future__ import annotations

from dataclasses import dataclass

#: Kernel time of a step unless told otherwise, seconds: a decode step of a small model.
DEFAULT_STEP_S = 2e-3

#: Name of the workload that a run without one uses.
DEFAULT_WORKLOAD = "decode R=256 K=20"


@dataclass(frozen=True)
class Workload:
    """One step's results.

    Attributes
    ----------
    name : str
    num_bytes : int
        Of all tensors together.
    tensors : int
    step_s : float
        Kernel time of a step.
    """

    name: str
    num_bytes: int
    tensors: int
    step_s: float = DEFAULT_STEP_S

    def __post_init__(self) -> None:
        if self.tensors < 1 or self.num_bytes < self.tensors:
            raise ValueError(
                f"{self.num_bytes} bytes in {self.tensors} tensors: give at least one tensor, and "
                "a byte for each"
            )
        if not self.step_s > 0:
            raise ValueError(f"a step of {self.step_s} s: give a time above 0")


def _decode(requests: int, logprobs: int = 0) -> tuple[int, int]:
    """Give bytes and tensors of a decode step of R requests with K logprobs each."""
    return _speculative(requests, 1, logprobs, requests)


def _speculative(requests: int, width: int, logprobs: int, tokens: int) -> tuple[int, int]:
    """Give the same of R requests that sample up to W tokens each, `tokens` in all.

    Token ids are int64 and counts int32. Logprobs add ids, values and ranks a token, of 4
    bytes each, and a count of NaNs a request.
    """
    ids_and_counts = requests * (8 * width + 4)
    if not logprobs:
        return ids_and_counts, 2
    return ids_and_counts + tokens * (2 * 4 * (logprobs + 1) + 4) + requests * 4, 6


def _prompts(requests: int, positions: int) -> tuple[int, int]:
    """Give bytes and tensors of prompt logprobs: two ids, two values and a rank a position."""
    return requests * positions * (2 * 4 + 2 * 4 + 4), 3 * requests


def _plus(*parts: tuple[int, int]) -> tuple[int, int]:
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


#: Bytes and tensors of typical steps. Names are those of the benchmark suites.
SHAPES: dict[str, tuple[int, int]] = {
    "decode R=1 K=0": _decode(1),
    "decode R=64 K=20": _decode(64, 20),
    "decode R=256 K=20": _decode(256, 20),
    "decode R=1024 K=0": _decode(1024),
    "decode R=1024 K=20": _decode(1024, 20),
    # Of up to four tokens a request the suites sample 637, by their seed.
    "speculative R=256 W=4 K=20": _speculative(256, 4, 20, tokens=637),
    "prompt logprobs 16 x 1024": _plus(_decode(16), _prompts(16, 1024)),
    # 2,048 token ids, a bit for each of 128,256 tokens and a count a request.
    "sampling masks R=256": _plus(_decode(256), (256 * (2048 * 4 + 128_256 // 8 + 4), 3)),
    "pooling 256 x 4096 fp32": (256 * 4096 * 4, 1),
    "pooling 256 x 4096 bf16": (256 * 4096 * 2, 1),
    # 48 of 64 requests are finished; by the suites' seed they have 825 rows of 1,024 values.
    "pooling 64 ragged": (825 * 1024 * 4, 48),
    "routed experts 8192 x 60 x 8": _plus(_decode(256), (8192 * 60 * 8 * 2, 1)),
    "logits 256 x 128256 fp32": (256 * 128_256 * 4, 1),
}


def named(name: str, step_s: float = DEFAULT_STEP_S) -> Workload:
    """Give a named workload at a step length.

    Raises
    ------
    ValueError
        There is none of that name; the message lists those that there are.
    """
    if name not in SHAPES:
        raise ValueError(f"no workload {name!r}; there are {', '.join(map(repr, SHAPES))}")
    num_bytes, tensors = SHAPES[name]
    return Workload(name, num_bytes, tensors, step_s)
