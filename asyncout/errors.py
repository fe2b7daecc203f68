"""Every named error and warning of asyncout.

Each also derives from the built-in class that plain Python code would expect,
so that callers who catch ``ValueError`` or ``RuntimeError`` need not change.
"""


class AsyncOutError(Exception):
    """Base of every error that asyncout raises on its own account."""


class LengthMismatchError(AsyncOutError, ValueError):
    """Two inputs that must have the same length have not."""


class CountOutOfRangeError(AsyncOutError, ValueError):
    """A request's token count is negative or above what its row can hold."""


class StreamTypeError(AsyncOutError, TypeError):
    """An argument that must be a stream (or event) is none, or one of an unknown device."""


class DeviceMismatchError(AsyncOutError, ValueError):
    """Streams, tensors or events of one output live on different devices."""


class DeviceUnavailableError(AsyncOutError, RuntimeError):
    """The device that an operation needs is not there."""


class PolicyError(AsyncOutError, ValueError):
    """A policy's field has a value that does not exist, or not on this device."""


class GraphCaptureError(AsyncOutError, RuntimeError):
    """An output was constructed while a CUDA graph was being captured."""


class FaultMonitorMissingError(AsyncOutError, ValueError):
    """A fault check was asked for and no monitor was given."""


class ExpertFaultError(AsyncOutError, RuntimeError):
    """The expert-parallel fault flag was set during the step."""


class NanLogitsError(AsyncOutError, RuntimeError):
    """A request's logits held NaNs and the caller asked to be told."""


class OutputTimeoutError(AsyncOutError, TimeoutError):
    """An output had not arrived in the time given; it can still be read later."""


class TimingError(AsyncOutError, RuntimeError):
    """Step timing was used in an order, or with events, that cannot be timed."""


class ProfileError(AsyncOutError, ValueError):
    """A cost profile's file is cut, foreign, or has a value that cannot be."""


class SameStreamWarning(UserWarning):
    """The copy stream is the main stream under another name: nothing overlaps."""


class MemoryFallbackWarning(UserWarning):
    """Pinned memory was asked for and pageable memory was obtained."""


class RangesUnavailableWarning(UserWarning):
    """The environment asked for ranges and this torch cannot make them."""
