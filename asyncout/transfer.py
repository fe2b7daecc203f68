"""How bytes reach the host: one class per way, chosen by policy.

A transfer enqueues copies on the current stream and returns host tensors whose
contents arrive later. It never waits for the device, but for pageable
destinations, for which the driver itself holds the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch

from asyncout.policy import CopyPolicy


class Transfer(Protocol):
    """Enqueues the copies of one step."""

    def enqueue(self, sources: Sequence[torch.Tensor], arrived: list[torch.Tensor]) -> None:
        """Append to `arrived` one host tensor per source, in order.

        When it raises, `arrived` holds what was enqueued until then.
        """


class PerTensorTransfer:
    """One driver call and one allocation per tensor.

    Parameters
    ----------
    copy : callable
        Enqueues the copy of one device tensor and returns its destination.
    """

    def __init__(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._copy = copy

    def enqueue(self, sources: Sequence[torch.Tensor], arrived: list[torch.Tensor]) -> None:
        """Append to `arrived` one host tensor per source, in order."""
        for source in sources:
            arrived.append(source.clone() if source.is_cpu else self._copy(source))


def copy_to_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Enqueue a copy into pinned memory that torch allocates and tracks.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape and dtype, on a device.

    Returns
    -------
    torch.Tensor
        Same shape and dtype, on the host; its contents arrive later.
    """
    # torch pins the destination of a non-blocking copy to the host by itself.
    return tensor.to("cpu", non_blocking=True)


def copy_to_pageable(tensor: torch.Tensor) -> torch.Tensor:
    """Copy into ordinary memory; the driver holds the host until it is done.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape and dtype, on a device.

    Returns
    -------
    torch.Tensor
        Same shape and dtype, on the host, complete.
    """
    destination = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    destination.copy_(tensor, non_blocking=True)
    return destination


def async_copy_to_np(tensor: torch.Tensor) -> np.ndarray:
    """Enqueue a copy on the current stream and return the host array at once.

    Parameters
    ----------
    tensor : torch.Tensor
        Any shape, of a dtype that NumPy has. A tensor on the host is copied too.

    Returns
    -------
    numpy.ndarray
        Same shape and dtype. For a device tensor the contents arrive later: wait
        for an event recorded after this call before reading them.

    Raises
    ------
    TypeError
        NumPy has no such dtype (bfloat16): copy with ``tensor.to("cpu",
        non_blocking=True)`` and keep a tensor. Nothing was enqueued.
    """
    if tensor.dtype is torch.bfloat16:
        raise TypeError(
            "async_copy_to_np cannot give bfloat16: NumPy has no such dtype; "
            'use tensor.to("cpu", non_blocking=True) and keep a tensor'
        )
    host = tensor.clone() if tensor.is_cpu else copy_to_pinned(tensor)
    array: np.ndarray = host.numpy()
    return array


def transfer_for(policy: CopyPolicy) -> Transfer:
    """Choose the transfer of a policy."""
    copy = copy_to_pinned if policy.memory == "pinned" else copy_to_pageable
    return PerTensorTransfer(copy)
