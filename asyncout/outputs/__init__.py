"""The data types of an engine's step. Field names and their order are contract."""

from asyncout.outputs.logprobs import LogprobsLists, LogprobsTensors
from asyncout.outputs.masks import SamplingMaskLists, SamplingMaskTensors
from asyncout.outputs.runner import (
    AsyncModelRunnerOutput,
    KVConnectorOutput,
    ModelRunnerOutput,
    PoolerOutput,
)
from asyncout.outputs.sampler import FaultMonitor, PendingAuxOutput, SamplerOutput

__all__ = [
    "AsyncModelRunnerOutput",
    "FaultMonitor",
    "KVConnectorOutput",
    "LogprobsLists",
    "LogprobsTensors",
    "ModelRunnerOutput",
    "PendingAuxOutput",
    "PoolerOutput",
    "SamplerOutput",
    "SamplingMaskLists",
    "SamplingMaskTensors",
]
