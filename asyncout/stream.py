"""``stream(to, from)``: switch the current stream for a block, and switch back."""

from __future__ import annotations

from collections.abc import Callable
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

    __slots__ = ("_from", "_to")

    _from: Callable[[], None]
    _to: Callable[[], None]

    def __new__(cls, to_stream: Any, from_stream: Any) -> stream:
        """Give the switch of a pair; an engine asks for the same one in each step."""
        global _last
        last_to, last_from, last = _last
        if last_to is to_stream and last_from is from_stream:
            return last  # type: ignore[no-any-return]
        runtime = runtime_of(to_stream)
        if runtime_of(from_stream) is not runtime:
            raise StreamTypeError(
                f"stream() cannot switch from {from_stream!r} to {to_stream!r}: "
                "they belong to different kinds of device"
            )
        switch = super().__new__(cls)
        switch._to, switch._from = runtime.switch(to_stream), runtime.switch(from_stream)
        _last = (to_stream, from_stream, switch)
        return switch

    def __enter__(self) -> None:
        try:
            self._to()
        except BaseException:
            # A switch that failed may have changed the device before it did.
            self._from()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._from()


#: The last pair and its switch, which has no state: threads and nested blocks may share it.
_last: tuple[Any, Any, Any] = (None, None, None)
