"""What would another link or another step length gain? Modelled throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asyncout.doctor.links import LINKS, Link
from asyncout.doctor.predicting import Model
from asyncout.doctor.recommending import NAIVE
from asyncout.doctor.workloads import Workload
from asyncout.policy import CopyPolicy
from asyncout.virtual import CostProfile

#: Kernel times of a step that are answered for, seconds: from a small model's decode step to
#: a large one's.
STEP_LENGTHS = (0.5e-3, 2e-3, 10e-3, 30e-3)

#: Share of a step's time from which on a second stream counts as worth having.
WORTH_SHARE = 0.01

#: Bytes of an output that the curve and the break-even are looked for at: every power of two
#: from a few token ids to a large step's hidden states.
CURVE_BYTES = tuple(1 << power for power in range(12, 29))

#: The two arms: everything as by default, and the copies on the main stream. Spinning, so that
#: a late wake-up does not hide what the streams do.
TWO_STREAMS = CopyPolicy(wait="spin")
ONE_STREAM = CopyPolicy(streams="single", wait="spin")


@dataclass(frozen=True)
class Answer:
    """What one link would give at one step length. Modelled, never measured.

    Attributes
    ----------
    link : str
    bytes_per_s : float
        What copies to pinned memory are taken to reach.
    step_s : float
        Kernel time of a step.
    naive_s, one_stream_s, two_streams_s : float
        Time of a step with the workload's output: copied as ``tensor.cpu()`` does, on the main
        stream, and on the copy stream.
    worth_from_bytes : int or None
        Least of :data:`CURVE_BYTES`, in as many tensors, for which the second stream saves
        :data:`WORTH_SHARE` of a step; None where none of them does.
    fills_step_bytes : float
        Output whose copy lasts as long as the step's kernels: more cannot be hidden.
    """

    link: str
    bytes_per_s: float
    step_s: float
    naive_s: float
    one_stream_s: float
    two_streams_s: float
    worth_from_bytes: int | None
    fills_step_bytes: float

    @property
    def gain(self) -> float:
        """Share of a step's time that the second stream saves."""
        return 1 - self.two_streams_s / self.one_stream_s


@dataclass(frozen=True)
class Curve:
    """Share of a step's time that the second stream saves, by the output's size. Modelled.

    Attributes
    ----------
    link : str
    points : tuple of (bytes, share)
    """

    link: str
    points: tuple[tuple[int, float], ...]


def answer(
    profile: CostProfile, workload: Workload, step_lengths: Sequence[float] = STEP_LENGTHS
) -> list[Answer]:
    """Answer for every link and step length."""
    answers = []
    for link in LINKS:
        behind = link.on(profile)
        model = Model(behind, workload.num_bytes, workload.tensors)
        sizes = _Sizes(behind, workload.tensors)
        for step in step_lengths:
            answers.append(
                Answer(
                    link=link.name,
                    bytes_per_s=link.bytes_per_s,
                    step_s=step,
                    naive_s=model.pipelined(NAIVE, step)[0],
                    one_stream_s=model.pipelined(ONE_STREAM, step)[0],
                    two_streams_s=model.pipelined(TWO_STREAMS, step)[0],
                    worth_from_bytes=sizes.worth_from(step),
                    fills_step_bytes=max(0.0, step - behind.copy_latency_s) * link.bytes_per_s,
                )
            )
    return answers


def curves(profile: CostProfile, workload: Workload) -> list[Curve]:
    """Give the gain by size at the workload's step length, for every link."""
    return [_curve(profile, link, workload) for link in LINKS]


def _curve(profile: CostProfile, link: Link, workload: Workload) -> Curve:
    sizes = _Sizes(link.on(profile), workload.tensors)
    return Curve(
        link.name,
        tuple((size, sizes.gain(size, workload.step_s)) for size in sizes.known),
    )


class _Sizes:
    """The gain of a second stream for outputs of any size in as many tensors, on one profile."""

    def __init__(self, profile: CostProfile, tensors: int) -> None:
        self._profile = profile
        self._tensors = tensors
        self.known = [size for size in CURVE_BYTES if size >= tensors]
        self._models: dict[int, Model] = {}

    def gain(self, num_bytes: int, step_s: float) -> float:
        model = self._models.get(num_bytes)
        if model is None:
            model = Model(self._profile, num_bytes, self._tensors)
            self._models[num_bytes] = model
        one, two = (model.pipelined(arm, step_s)[0] for arm in (ONE_STREAM, TWO_STREAMS))
        return 1 - two / one

    def worth_from(self, step_s: float) -> int | None:
        """Halve the sizes: a larger output gains more, until its copy fills the step.

        Beyond that the gain falls, but a size that is too large to gain enough for that reason
        comes behind ones that do.
        """
        fills = step_s * self._profile.d2h_pinned_bytes_per_s
        sizes = [size for size in self.known if size <= fills]
        low, high = 0, len(sizes)
        while low < high:
            middle = (low + high) // 2
            if self.gain(sizes[middle], step_s) >= WORTH_SHARE:
                high = middle
            else:
                low = middle + 1
        return sizes[low] if low < len(sizes) else None
