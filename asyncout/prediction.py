"""Predicts a value from its recent past: how long until a step's event, how late a sleep."""

from __future__ import annotations

import math

#: Weight of the newest value: some eight of them are remembered, long enough to know the
#: spread of a jittery step and short enough to follow one that changes.
NEWEST = 1 / 8

#: Spreads on either side of the mean within which a value is expected. A uniform jitter of
#: ±j has a spread of 0.58 j, so two of them reach past its edges.
EXPECTED_SPREADS = 2.0

#: A value that lies so many spreads from the mean, and differs by this share of it, is no
#: jitter: what was learned before is forgotten.
JUMP_SPREADS = 6.0
JUMP_SHARE = 0.3

#: Spread assumed after a single value, as a share of it.
FIRST_SPREAD = 0.05

#: Values like the first after a jump until it is no lone one, such as a prefill among decode
#: steps: until then the next value may well be as small as those before.
VALUES_TO_TRUST = 3


class RecentPast:
    """Mean and spread of a value, the newest weighted most.

    Attributes
    ----------
    count : int
        Values since the start or the last jump.
    mean : float
    """

    __slots__ = ("_before", "_variance", "count", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._variance = 0.0
        #: The least that was expected before the last jump.
        self._before = math.inf

    def add(self, value: float) -> None:
        """Take in one more value."""
        difference = value - self.mean
        square = difference * difference
        if self.count and (
            abs(difference) > JUMP_SHARE * self.mean and square > JUMP_SPREADS**2 * self._variance
        ):
            self._before = self.least
            self.count = 0
        if self.count == 0:
            self.mean, self._variance = value, (FIRST_SPREAD * value) ** 2
        else:
            # The first values count alike, so that the assumed spread is soon outweighed.
            weight = max(NEWEST, 1 / (self.count + 1))
            self.mean += weight * difference
            self._variance += weight * (square - self._variance)
        self.count += 1

    def forget(self) -> None:
        """Start again from nothing."""
        self.count = 0
        self._before = math.inf

    @property
    def least(self) -> float:
        """A value that the next one will hardly be below."""
        least = self.mean - self.margin
        return least if self.count >= VALUES_TO_TRUST else min(least, self._before)

    @property
    def margin(self) -> float:
        """How far from the mean the next value may well lie."""
        return EXPECTED_SPREADS * math.sqrt(self._variance)
