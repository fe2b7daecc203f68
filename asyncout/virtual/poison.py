"""The pattern that memory without contents is filled with."""

from __future__ import annotations

import torch

#: Byte that memory without contents is filled with: no likely token id, count or mask.
POISON_BYTE = 0xA5


def poison(tensor: torch.Tensor) -> None:
    """Fill a host tensor's own elements with the poison pattern."""
    if tensor.is_contiguous():
        tensor.reshape(-1).view(torch.uint8).fill_(POISON_BYTE)
    elif tensor.numel():
        pattern = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        poison(pattern)
        tensor.copy_(pattern)


def is_poison(tensor: torch.Tensor) -> bool:
    """Whether every byte of a host tensor is poison; an empty one holds none."""
    data = tensor.contiguous().view(-1).view(torch.uint8)
    return data.numel() > 0 and bool((data == POISON_BYTE).all())
