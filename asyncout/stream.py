"""``stream(to, from)``: switch the current stream for a block, and switch back."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from asyncout.errors import StreamTypeError
from asyncout.runtime import runtime_of


class stream:  # lower case: the technique's name for it, used like a function
    """Make `to_stream` current inside a ``with`` block and `from_stream` after it.

    Never asks which stream or device is current: the caller says what to go back
    to, and saves the two questions that ``torch.cuda.stream`` asks on each entry.

    Parameters
    ----------
    to_stream : torch.cuda.Stream or asyncout.virtual.VirtualStream
        Current inside the block.
    from_stream : same kind
        Current after the block, also when its body raises.

    Raises
    ------
    StreamTypeError
        One of the two is no stream, or they belong to different kinds of device.
        Nothing was switched.
    """

    __slots__ = ("_from", "_set_stream", "_to")

    def __init__(self, to_stream: Any, from_stream: Any) -> None:
        runtime = runtime_of(to_stream)
        if runtime_of(from_stream) is not runtime:
            raise StreamTypeError(
                f"stream() cannot switch from {from_stream!r} to {to_stream!r}: "
                "they belong to different kinds of device"
            )
        self._to = runtime.as_stream(to_stream)
        self._from = runtime.as_stream(from_stream)
        self._set_stream = runtime.set_stream

    def __enter__(self) -> None:
        try:
            self._set_stream(self._to)
        except BaseException:
            # A switch that failed may have changed the device before it did.
            self._set_stream(self._from)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._set_stream(self._from)
