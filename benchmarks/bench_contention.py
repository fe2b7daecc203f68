"""Question 6: how long does a small output wait beside a large offload?"""

from __future__ import annotations

from benchmarks import names, suite


class _Question6(suite.Grid):
    question = 6

    def setup_cache(self) -> suite.Cache:
        return suite.collect("contention")

    setup_cache.timeout = suite.SETUP_TIMEOUT_S  # type: ignore[attr-defined]


class ReadyBesideOffload(_Question6):
    """From a step's end to its output on the host, with 256 MiB on their way."""

    metric = "output ready beside an offload"
    params = (
        names.OFFLOADS,
        [
            "same direction / alone",
            "other direction / alone",
            "both directions / alone",
            "same direction, chunked / same direction",
            "both directions, chunked / both directions",
        ],
    )


class ReadyBesideOffloadModelled(ReadyBesideOffload):
    """The same on the virtual device."""

    modelled = True
