"""What each factor of a factorial does, alone and together with each other one.

A *cell* is one combination of levels, such as (two streams, pinned, block, batched);
its samples are paired with those of all other cells by round. Effects are ratios: the
geometric mean over all other factors of time at a level over time at the factor's first
level. An interaction is a ratio of two such ratios: 1 says that what one factor gains
does not depend on the other. Each is computed round by round, so drift cancels, and gets
the rank interval of its median.

Pure: knows no device and no workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import median

import numpy as np

from benchmarks.measure import (
    CANNOT_TELL,
    CONFIDENCE,
    FASTER,
    SLOWER,
    MeasureError,
    dependent_interval,
)

#: Largest entry of a residual that still counts as zero: rounding of a few hundred sums.
ROUNDING = 1e-8

#: Random beginnings of the search for a balanced design; the best one is kept. More than
#: a few dozen gained nothing for the suites' grids.
STARTS = 24

#: Times that a start may go through all its cells; it settles after three or four.
MAX_PASSES = 20

#: Factor → its levels; the first one is what the others are compared with.
Factors = Mapping[str, Sequence[str]]

#: Level of each factor, in the order of the factors.
Cell = tuple[str, ...]


class DesignError(MeasureError):
    """Factors, cells or samples do not belong together; the message says which."""


class NotEstimableError(DesignError):
    """The cells that were measured cannot tell an effect from others."""


@dataclass(frozen=True)
class Effect:
    """What a change of levels does.

    Attributes
    ----------
    factors : tuple of str
        One: a main effect. Two: an interaction.
    levels, references : tuple of str
        The level of each factor, and the one that it is compared with.
    ratio, low, high : float
        Median over the rounds, and its interval. Main effect: time at the level over time
        at the reference. Interaction: how many times the second factor's ratio is larger
        at the first factor's level than at its reference.
    verdict : {"faster", "slower", "cannot tell"}
        For an interaction: the two together are faster, or slower, than each alone says.
    """

    factors: tuple[str, ...]
    levels: tuple[str, ...]
    references: tuple[str, ...]
    ratio: float
    low: float
    high: float
    verdict: str

    @property
    def is_interaction(self) -> bool:
        """Whether it concerns two factors."""
        return len(self.factors) == 2

    def __str__(self) -> str:
        parts = zip(self.factors, self.levels, self.references, strict=True)
        named = " × ".join(f"{factor}: {level} / {base}" for factor, level, base in parts)
        return f"{named}: {self.ratio:.3g} [{self.low:.3g}, {self.high:.3g}], {self.verdict}"


def estimate(
    factors: Factors,
    samples: Mapping[Cell, Sequence[float]],
    *,
    interactions: bool = True,
    confidence: float = CONFIDENCE,
    min_effect: float = 0.0,
) -> list[Effect]:
    """Estimate every main effect, and every interaction of two factors.

    Parameters
    ----------
    factors : dict of str to sequence of str
    samples : dict of tuple of str to sequence of float
        Times above zero of the cells that were measured, all or a balanced part (see
        :func:`balanced_part`); equally many in each, one of each round at one index.
    interactions : bool
        Without them, they are taken to be 1; a small part of the cells then suffices.
    confidence : float
        Of each interval; for `n` effects that are to hold together give
        ``1 - (1 - CONFIDENCE) / n``, and samples enough for that.
    min_effect : float
        Changes up to this share are no verdict.

    Returns
    -------
    list of Effect
        Main effects, then interactions, in the order of the factors.

    Raises
    ------
    DesignError
        A cell's levels or samples do not fit.
    NotEstimableError
        These cells leave an effect mixed with others; the message names it.
    SampleCountError
        Too few rounds for an interval.

    Notes
    -----
    Least squares on the logarithms, with factors coded so that their levels' effects sum
    to zero: a main effect is then the average over the other factors' levels, and with
    all cells measured the estimates are plain differences of averages.
    """
    _check(factors, samples)
    model = _Model(factors, interactions)
    cells = list(samples)
    logs = np.log(np.array([samples[cell] for cell in cells], float))  # [cells, rounds]
    matrix = np.array([model.row(cell) for cell in cells])  # [cells, parameters]
    inverse = np.linalg.pinv(matrix)
    least = max(min_effect, ROUNDING)  # noiseless samples differ by rounding
    found = []
    for names, levels, references, contrast in model.contrasts():
        weights = contrast @ inverse
        if np.abs(weights @ matrix - contrast).max() > ROUNDING:
            raise NotEstimableError(
                f"these {len(cells)} cells cannot tell the effect of {_named(names, levels)} from "
                "others; measure more cells"
                + (", or estimate without interactions" if interactions else "")
            )
        ratios = np.exp(weights @ logs).tolist()
        low, high = dependent_interval(ratios, confidence)
        verdict = CANNOT_TELL
        if high < 1 - least:
            verdict = FASTER
        elif low > 1 + least:
            verdict = SLOWER
        found.append(Effect(names, levels, references, median(ratios), low, high, verdict))
    return found


def full_grid(factors: Factors) -> list[Cell]:
    """List every combination of levels, the last factor's changing fastest."""
    return list(product(*factors.values()))


def balanced_part(factors: Factors, count: int, seed: int = 0) -> list[Cell]:
    """Choose cells so that every level, and every pair of levels, comes as often as others.

    Parameters
    ----------
    factors : dict of str to sequence of str
    count : int
        How many cells; all of them when the grid has no more.
    seed : int
        The same seed gives the same cells, on every machine.

    Returns
    -------
    list of tuple of str
        In the order of :func:`full_grid`. Its effects can be estimated together, without
        interactions when there are too few cells for these.

    Raises
    ------
    DesignError
        So few cells cannot even tell the main effects.

    Notes
    -----
    From a random beginning, cells are exchanged as long as that makes the counts of pairs
    of levels more even, in a measure whose least value is theirs if all are equal.
    """
    grid = full_grid(factors)
    if count >= len(grid):
        return grid
    parameters = _Model(factors, interactions=False).size
    if count < parameters:
        raise DesignError(
            f"{count} cells cannot tell {parameters - 1} main effects apart; take at least "
            f"{parameters} of the {len(grid)}"
        )
    indicators = _level_indicators(factors, grid)
    rows = {kind: _Model(factors, kind) for kind in (True, False)}
    best: tuple[tuple[int, int, float], list[int]] | None = None
    for start in range(STARTS):
        random = np.random.default_rng([seed, start])
        chosen = sorted(random.choice(len(grid), count, replace=False).tolist())
        chosen, unevenness = _exchange(indicators, chosen)
        # Balance is the aim; among equally balanced parts the one that tells more apart.
        ranks = [
            int(np.linalg.matrix_rank(np.array([model.row(grid[i]) for i in chosen])))
            for model in (rows[False], rows[True])
        ]
        score = (-ranks[0], -ranks[1], unevenness)
        if best is None or score < best[0]:
            best = score, chosen
    assert best is not None
    return [grid[index] for index in sorted(best[1])]


def _exchange(indicators: np.ndarray, chosen: list[int]) -> tuple[list[int], float]:
    """Exchange cells until no exchange makes the pair counts more even."""
    chosen = list(chosen)
    inside = np.zeros(len(indicators), bool)
    inside[chosen] = True
    # Levels' pair counts are C = the sum of x x' over chosen x, and the measure is the sum
    # of C's squares: adding x raises it by 2 x'Cx and a constant. x'Cx of all cells is kept.
    affinity = ((indicators @ indicators[chosen].T) ** 2).sum(axis=1)
    for _ in range(MAX_PASSES):
        changed = False
        for place, old in enumerate(chosen):
            without = affinity - (indicators @ indicators[old]) ** 2
            cost = np.where(inside, np.inf, without)
            new = int(cost.argmin())
            if cost[new] < without[old] - ROUNDING:
                inside[old], inside[new] = False, True
                chosen[place] = new
                affinity = without + (indicators @ indicators[new]) ** 2
                changed = True
        if not changed:
            break
    return chosen, float(affinity[chosen].sum())


def _level_indicators(factors: Factors, cells: Sequence[Cell]) -> np.ndarray:
    """Give a 0/1 row per cell, one column per level; weighted so that factors count alike."""
    columns = [
        [float(cell[place] == level) * math.sqrt(len(levels)) for cell in cells]
        for place, levels in enumerate(factors.values())
        for level in levels
    ]
    return np.array(columns).T


class _Model:
    """Columns of the least squares: 1, each factor's, each pair's products."""

    def __init__(self, factors: Factors, interactions: bool) -> None:
        self._factors = factors
        self._codes = {
            name: {level: _code(index, len(levels)) for index, level in enumerate(levels)}
            for name, levels in factors.items()
        }
        terms: list[tuple[str, ...]] = [(name,) for name in factors]
        if interactions:
            terms += combinations(factors, 2)
        self._places: dict[tuple[str, ...], slice] = {}
        self.size = 1
        for names in terms:
            width = math.prod(len(factors[name]) - 1 for name in names)
            self._places[names] = slice(self.size, self.size + width)
            self.size += width

    def row(self, cell: Cell) -> np.ndarray:
        """Give a cell's row of the model's matrix."""
        levels = dict(zip(self._factors, cell, strict=True))
        row = np.zeros(self.size)
        row[0] = 1.0
        for names, place in self._places.items():
            row[place] = _kron([self._codes[name][levels[name]] for name in names])
        return row

    def contrasts(
        self,
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], np.ndarray]]:
        """Give names, levels, references and the combination of parameters of each effect."""
        for names, place in self._places.items():
            references = tuple(self._factors[name][0] for name in names)
            for levels in product(*(self._factors[name][1:] for name in names)):
                contrast = np.zeros(self.size)
                contrast[place] = _kron(
                    [
                        self._codes[name][level] - self._codes[name][reference]
                        for name, level, reference in zip(names, levels, references, strict=True)
                    ]
                )
                yield names, levels, references, contrast


def _code(index: int, levels: int) -> np.ndarray:
    """Code a level so that the levels' codes sum to zero."""
    return -np.ones(levels - 1) if index == levels - 1 else np.eye(levels - 1)[index]


def _kron(parts: Sequence[np.ndarray]) -> np.ndarray:
    result = parts[0]
    for part in parts[1:]:
        result = np.kron(result, part)
    return result


def _named(names: Sequence[str], levels: Sequence[str]) -> str:
    return " × ".join(f"{name}={level}" for name, level in zip(names, levels, strict=True))


def _check(factors: Factors, samples: Mapping[Cell, Sequence[float]]) -> None:
    if short := [name for name, levels in factors.items() if len(set(levels)) < 2]:
        raise DesignError(f"factor {short[0]!r} has fewer than two different levels")
    if not samples:
        raise DesignError("no cell was measured")
    rounds = len(next(iter(samples.values())))
    for cell, values in samples.items():
        if len(cell) != len(factors) or any(
            level not in levels for level, levels in zip(cell, factors.values(), strict=False)
        ):
            raise DesignError(f"cell {cell!r} is no combination of levels of {', '.join(factors)}")
        if len(values) != rounds:
            raise DesignError(
                f"cell {cell!r} has {len(values)} samples and others {rounds}; rounds pair them"
            )
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise DesignError(f"cell {cell!r} has a sample that is no time above zero")
