"""Brings an inference step's few small results from the GPU to the host, asynchronously."""

from asyncout.async_output import AsyncOutput
from asyncout.errors import (
    AsyncOutError,
    CountOutOfRangeError,
    DeviceMismatchError,
    DeviceUnavailableError,
    ExpertFaultError,
    FaultMonitorMissingError,
    GraphCaptureError,
    LengthMismatchError,
    MemoryFallbackWarning,
    NanLogitsError,
    OutputTimeoutError,
    PolicyError,
    RangesUnavailableWarning,
    SameStreamWarning,
    StreamTypeError,
    TimingError,
)
from asyncout.outputs import (
    AsyncModelRunnerOutput,
    FaultMonitor,
    KVConnectorOutput,
    LogprobsLists,
    LogprobsTensors,
    ModelRunnerOutput,
    PendingAuxOutput,
    PoolerOutput,
    SamplerOutput,
    SamplingMaskLists,
    SamplingMaskTensors,
)
from asyncout.policy import AXES, DEFAULT, ORIGINAL, CopyPolicy
from asyncout.pooling_output import AsyncPoolingOutput
from asyncout.ranges import disable_nvtx, enable_if_asked, enable_nvtx
from asyncout.step_timing import StepTimingCollector, StepTimingSample
from asyncout.stream import stream
from asyncout.transfer import async_copy_to_np

__version__ = "0.1.0"

__all__ = [
    "AXES",
    "DEFAULT",
    "ORIGINAL",
    "AsyncModelRunnerOutput",
    "AsyncOutError",
    "AsyncOutput",
    "AsyncPoolingOutput",
    "CopyPolicy",
    "CountOutOfRangeError",
    "DeviceMismatchError",
    "DeviceUnavailableError",
    "ExpertFaultError",
    "FaultMonitor",
    "FaultMonitorMissingError",
    "GraphCaptureError",
    "KVConnectorOutput",
    "LengthMismatchError",
    "LogprobsLists",
    "LogprobsTensors",
    "MemoryFallbackWarning",
    "ModelRunnerOutput",
    "NanLogitsError",
    "OutputTimeoutError",
    "PendingAuxOutput",
    "PolicyError",
    "PoolerOutput",
    "RangesUnavailableWarning",
    "SameStreamWarning",
    "SamplerOutput",
    "SamplingMaskLists",
    "SamplingMaskTensors",
    "StepTimingCollector",
    "StepTimingSample",
    "StreamTypeError",
    "TimingError",
    "async_copy_to_np",
    "disable_nvtx",
    "enable_nvtx",
    "stream",
]

enable_if_asked()
