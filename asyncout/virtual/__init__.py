"""A device without a GPU, in virtual time. Everything that it measures is modelled."""

from asyncout.virtual.engine import Record
from asyncout.virtual.explore import InterleavingError, explore, replay
from asyncout.virtual.machine import VirtualMachine
from asyncout.virtual.poison import POISON_BYTE, is_poison
from asyncout.virtual.profile import CostProfile
from asyncout.virtual.streams import VirtualEvent, VirtualStream
from asyncout.virtual.tensor import VirtualTensor

__all__ = [
    "POISON_BYTE",
    "CostProfile",
    "InterleavingError",
    "Record",
    "VirtualEvent",
    "VirtualMachine",
    "VirtualStream",
    "VirtualTensor",
    "explore",
    "is_poison",
    "replay",
]
