"""What other links between device and host would carry, for "what would I gain on that one?".

A rate is what the link's public specification gives for one direction, less the link's own
encoding; what of it copies reach is the share that they reached on the machine with results.
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncout.virtual import CostProfile

#: Lanes of a full PCIe slot, and bits of a byte.
_LANES, _BITS = 16, 8


def _pcie(transfers_per_s: float, encoding: float) -> float:
    """Give bytes per second of 16 lanes in one direction; one bit per transfer and lane."""
    return transfers_per_s * encoding * _LANES / _BITS


#: What 16 lanes of PCIe 5 carry: PCI Express Base Specification 5.0, 32 GT/s, 128b/130b.
PCIE5_BYTES_PER_S = _pcie(32e9, 128 / 130)

#: Share of it that copies to pinned memory reach: 55.2 GB/s at 256 MiB, measured on an H200
#: at PCIe 5 x16, of 63.0. Taken to hold for the other links, where nothing was measured.
EFFICIENCY = 55.2e9 / PCIE5_BYTES_PER_S


@dataclass(frozen=True)
class Link:
    """A link between device and host.

    Attributes
    ----------
    name : str
    raw_bytes_per_s : float
        One direction, from the specification.
    """

    name: str
    raw_bytes_per_s: float

    @property
    def bytes_per_s(self) -> float:
        """What copies to pinned memory are taken to reach."""
        return self.raw_bytes_per_s * EFFICIENCY

    def on(self, profile: CostProfile) -> CostProfile:
        """Give a profile as it would be behind this link.

        Pageable copies go through the host's own memory as before, but no faster than the link.
        """
        reached = self.bytes_per_s
        return profile.replace(
            machine=f"{profile.machine} behind {self.name}",
            source=f"{profile.source}; link replaced by {self.name}: modelled",
            d2h_pinned_bytes_per_s=reached,
            h2d_pinned_bytes_per_s=reached,
            d2h_pageable_bytes_per_s=min(profile.d2h_pageable_bytes_per_s, reached),
            h2d_pageable_bytes_per_s=min(profile.h2d_pageable_bytes_per_s, reached),
        )


#: The links that ``--what-if`` answers for.
LINKS = (
    # PCI Express Base Specification 3.0 and 4.0: 8 and 16 GT/s, 128b/130b.
    Link("PCIe 3 x16", _pcie(8e9, 128 / 130)),
    Link("PCIe 4 x16", _pcie(16e9, 128 / 130)),
    Link("PCIe 5 x16", PCIE5_BYTES_PER_S),
    # PCI Express Base Specification 6.0: 64 GT/s; 236 of a flit's 256 bytes carry packets.
    Link("PCIe 6 x16", _pcie(64e9, 236 / 256)),
    # NVIDIA's figure for Grace Hopper: 900 GB/s in both directions together.
    Link("NVLink-C2C", 450e9),
)
