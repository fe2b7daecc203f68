"""How a step's results travel: one frozen dataclass, one field per choice.

A policy is data. The code that acts on it is chosen once per pair of streams
(see :mod:`asyncout.copy_path`), not asked at each call.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from asyncout.errors import PolicyError

#: The values of each axis, in the order in which the suites show them.
AXES: dict[str, tuple[str, ...]] = {
    "streams": ("dual", "single"),
    "memory": ("pinned", "pageable"),
    "wait": ("block", "spin", "hybrid"),
    "copies": ("per_tensor", "batched"),
    "submit": ("inline", "thread"),
}


@dataclass(frozen=True)
class CopyPolicy:
    """One way to bring results to the host.

    Attributes
    ----------
    streams : {"dual", "single"}
        "dual" copies on the copy stream, beside the next step's kernels;
        "single" copies on the main stream, behind this step's.
    memory : {"pinned", "pageable"}
        Kind of the host memory that copies arrive in. Pageable destinations
        hold the host until the copy is done.
    wait : {"block", "spin", "hybrid"}
        "block" lets the waiting thread sleep in the driver; "spin" keeps it
        running on a core and returns sooner; "hybrid" sleeps for most of the
        expected wait and spins for the rest.
    copies : {"per_tensor", "batched"}
        "per_tensor" makes one driver call and one allocation per tensor;
        "batched" makes one of each for all of a step's results.
    submit : {"inline", "thread"}
        "inline" enqueues the copies in the constructor; "thread" leaves that to one
        worker thread with a stream of its own, where enqueuing would hold the engine's:
        pageable destinations, confidential computing.

    Raises
    ------
    PolicyError
        A field has a value that its axis does not have, or "single" meets "thread".
    """

    streams: str = "dual"
    memory: str = "pinned"
    wait: str = "hybrid"
    copies: str = "batched"
    submit: str = "inline"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value not in AXES[field.name]:
                allowed = ", ".join(repr(choice) for choice in AXES[field.name])
                raise PolicyError(f"CopyPolicy.{field.name} is {value!r}; choose one of {allowed}")
        if self.streams == "single" and self.submit == "thread":
            raise PolicyError(
                "CopyPolicy.streams='single' copies on the main stream, and submit='thread' on the "
                "worker's own: choose streams='dual', or submit='inline'"
            )


#: Exactly what the technique's original does: the baseline of every gain.
ORIGINAL = CopyPolicy(streams="dual", memory="pinned", wait="block", copies="per_tensor")

#: What an output uses when it is given no policy.
DEFAULT = CopyPolicy()
