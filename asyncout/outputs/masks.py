"""Which tokens could have been sampled: on the device, and as flat NumPy arrays."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from asyncout import hot
from asyncout.errors import CountOutOfRangeError, LengthMismatchError

#: Rows whose bits are unpacked at a time: 4 MB for a vocabulary of 128,256, about what a core's
#: cache holds; all rows at once would be slower and take a byte of memory per bit.
UNPACKED_ROWS = 32

#: Share of bytes with a bit set from which on all are unpacked: picking them out costs more.
MOSTLY_OCCUPIED = 0.5


class SamplingMaskLists(NamedTuple):
    """Allowed tokens of each position, row after row (CSR).

    Attributes
    ----------
    token_ids : numpy.ndarray, int32 [total]
    offsets : numpy.ndarray, int64 [rows + 1]
        Where each row begins in `token_ids`.
    cu_num_generated_tokens : list of int, R + 1 long
        Row at which each request begins.
    """

    token_ids: np.ndarray
    offsets: np.ndarray
    cu_num_generated_tokens: list[int]

    def slice_request(self, req_idx: int, num_positions: int) -> SamplingMaskLists:
        """Give the first rows of one request.

        Raises
        ------
        LengthMismatchError
            There is no such request, or it has fewer rows.
        """
        requests = len(self.cu_num_generated_tokens) - 1
        if not 0 <= req_idx < requests:
            raise LengthMismatchError(f"no request {req_idx} among {requests} in these masks")
        start, stop = self.cu_num_generated_tokens[req_idx : req_idx + 2]
        if not 0 <= num_positions <= stop - start:
            raise LengthMismatchError(
                f"request {req_idx} has {stop - start} mask rows; {num_positions} asked for"
            )
        offsets = self.offsets[start : start + num_positions + 1]
        return SamplingMaskLists(
            self.token_ids[offsets[0] : offsets[-1]], offsets - offsets[0], [0, num_positions]
        )

    def to_nested_list(self) -> list[list[int]]:
        """Give one list of token ids per row."""
        ids, offsets = self.token_ids.tolist(), self.offsets.tolist()
        return [ids[a:b] for a, b in itertools.pairwise(offsets)]


@dataclass
class SamplingMaskTensors:
    """Allowed tokens of each position, on the device or on the host.

    A row with at most `width` tokens lists them; a longer row is read from its bits.

    Attributes
    ----------
    token_ids : torch.Tensor, int32 [R * rows_per_request, width]
        The first `counts` entries of a row count.
    packed_mask : torch.Tensor, uint8 [R * rows_per_request, ceil(V / 8)]
        One bit per token, lowest bit first.
    counts : torch.Tensor, int32 [R * rows_per_request]
        Allowed tokens of each row.
    vocab_size : int
        V.
    rows_per_request : int
        W, the positions that a request may sample.
    """

    token_ids: torch.Tensor
    packed_mask: torch.Tensor
    counts: torch.Tensor
    vocab_size: int
    rows_per_request: int

    def tolists(self, num_sampled: np.ndarray) -> SamplingMaskLists:
        """Give the rows of what was sampled as flat arrays.

        Only for tensors on the host whose contents have arrived.

        Parameters
        ----------
        num_sampled : numpy.ndarray, int [R]
            Of each request's rows only so many count; the others are left out.

        Returns
        -------
        SamplingMaskLists
            Owns its memory.

        Raises
        ------
        LengthMismatchError
            Rows and `num_sampled` disagree, or a row's bits are not as many as its count.
        CountOutOfRangeError
            `num_sampled` is above rows_per_request, or a row's count above V.
        """
        num_sampled = np.asarray(num_sampled)
        all_counts = self.counts.numpy()
        flat = flatten(
            self.token_ids.numpy(),
            self.packed_mask.numpy(),
            all_counts,
            num_sampled,
            self.rows_per_request,
            self.vocab_size,
        )
        if flat is not None:
            return flat
        return self._tolists_in_python(num_sampled, all_counts)

    def _tolists_in_python(
        self, num_sampled: np.ndarray, all_counts: np.ndarray
    ) -> SamplingMaskLists:
        if len(num_sampled) * self.rows_per_request != len(all_counts):
            raise LengthMismatchError(
                f"{len(all_counts)} mask rows for {len(num_sampled)} requests of "
                f"{self.rows_per_request} rows each"
            )
        requests = np.arange(len(num_sampled))
        _check_range("num_sampled of request", requests, num_sampled, self.rows_per_request)
        slots = np.arange(self.rows_per_request)
        kept = np.flatnonzero(slots[None, :] < num_sampled[:, None])
        counts = all_counts[kept].astype(np.int64)
        # Of kept rows only: nobody need have written to the others.
        _check_range("count of mask row", kept, counts, self.vocab_size)
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        token_ids = np.empty(offsets[-1], np.int32)

        listed = self.token_ids.numpy()
        width = listed.shape[1]
        is_wide = counts > width
        narrow = np.flatnonzero(~is_wide)
        # Rows mostly list far fewer tokens than there is room for: no more columns are looked at.
        longest = int(counts[narrow].max(initial=0))
        listed = listed[kept[narrow], :longest]
        in_row = np.arange(longest)[None, :] < counts[narrow, None]
        wide = np.flatnonzero(is_wide)
        if len(wide) == 0:
            token_ids[:] = listed[in_row]
        else:
            belongs_to_wide = np.repeat(is_wide, counts)
            token_ids[~belongs_to_wide] = listed[in_row]
            token_ids[belongs_to_wide] = self._unpack(kept[wide], counts[wide])
        boundaries = [0, *np.cumsum(num_sampled).tolist()]
        return SamplingMaskLists(token_ids, offsets, boundaries)

    def _unpack(self, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Read the token ids of whole rows from their bits, ascending within a row."""
        parts = []
        for start in range(0, len(rows), UNPACKED_ROWS):
            some, wanted = (
                rows[start : start + UNPACKED_ROWS],
                counts[start : start + UNPACKED_ROWS],
            )
            row, token = _set_bits(self.packed_mask.numpy()[some], self.vocab_size)
            found = np.bincount(row, minlength=len(some))
            if not np.array_equal(found, wanted):
                wrong = int(np.flatnonzero(found != wanted)[0])
                raise LengthMismatchError(
                    f"mask row {some[wrong]} has a count of {wanted[wrong]} and {found[wrong]} "
                    "bits set"
                )
            parts.append(token.astype(np.int32))
        return np.concatenate(parts)


def flatten(
    token_ids: Any,
    packed_mask: Any,
    counts: Any,
    num_sampled: Any,
    rows_per_request: int,
    vocab_size: int,
) -> SamplingMaskLists | None:
    """Do what :meth:`SamplingMaskTensors.tolists` does, in compiled code where it is there.

    Takes buffers. None for whatever it does not know, which the loops in Python then explain.
    """
    if hot.COMPILED is None:
        return None
    flat = hot.COMPILED.mask_rows(
        token_ids, packed_mask, counts, num_sampled, rows_per_request, vocab_size
    )
    if flat is None:
        return None
    ids, offsets, boundaries = flat
    return SamplingMaskLists(
        np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64), boundaries
    )


def _check_range(name: str, numbers: np.ndarray, values: np.ndarray, most: int) -> None:
    """Refuse a value that is negative or above `most`, by its number."""
    wrong = np.flatnonzero((values < 0) | (values > most))
    if len(wrong):
        raise CountOutOfRangeError(
            f"{name} {numbers[wrong[0]]} is {values[wrong[0]]}; must lie between 0 and {most}"
        )


def _set_bits(packed: np.ndarray, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the set bits of packed rows: their rows and their places, in order."""
    width = packed.shape[1]
    flat = packed.reshape(-1)
    occupied = np.flatnonzero(flat)
    if len(occupied) > MOSTLY_OCCUPIED * len(flat):
        # Without the last byte's spare bits, which mean nothing.
        bits = np.unpackbits(packed, axis=1, count=vocab_size, bitorder="little")
        places = np.flatnonzero(bits.view(bool))
        row: np.ndarray = places // vocab_size
        return row, places - row * vocab_size
    places = np.flatnonzero(np.unpackbits(flat[occupied], bitorder="little").view(bool))
    byte = occupied[places >> 3]
    row = byte // width
    token = (byte - row * width) * 8 + (places & 7)
    inside = token < vocab_size
    return (row, token) if inside.all() else (row[inside], token[inside])
