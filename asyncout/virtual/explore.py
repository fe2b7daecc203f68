"""Runs a small program in every order that its dependencies allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncout.errors import AsyncOutError
from asyncout.virtual.machine import VirtualMachine

#: Orders tried when the caller names no bound; a few streams and copies have fewer.
MAX_RUNS = 10_000


class InterleavingError(AsyncOutError, AssertionError):
    """A program failed in one of its possible orders.

    Attributes
    ----------
    choices : list of int
        Replays the order: ``VirtualMachine(choose=replay(choices))``.
    program : str
        The host's calls of the failing run, as Python that runs them again in that order.
    """

    def __init__(self, cause: BaseException, choices: list[int], program: str) -> None:
        super().__init__(
            f"{type(cause).__name__}: {cause}\nin the order given by choices {choices} of the "
            f"program\n\n{program}\n"
        )
        self.choices = choices
        self.program = program


class _Script:
    """Follows a list of choices, then takes the first; remembers what there was to choose."""

    def __init__(self, choices: list[int]) -> None:
        self.choices = list(choices)
        self.options: list[int] = []

    def choose(self, count: int) -> int:
        position = len(self.options)
        self.options.append(count)
        if position == len(self.choices):
            self.choices.append(0)
        return self.choices[position]

    def next(self) -> list[int] | None:
        """Give the choices of the order after this one, None after the last."""
        for position in reversed(range(len(self.options))):
            if self.choices[position] + 1 < self.options[position]:
                return [*self.choices[:position], self.choices[position] + 1]
        return None


def replay(choices: list[int]) -> Callable[[int], int]:
    """Give the `choose` of a machine that repeats a recorded order."""
    return _Script(choices).choose


def explore(
    program: Callable[[VirtualMachine], None], max_runs: int = MAX_RUNS, **machine: Any
) -> tuple[int, bool]:
    """Run `program` on a new machine for each order of its device work.

    Parameters
    ----------
    program : callable
        Takes a :class:`VirtualMachine`; raises when something is wrong.
    max_runs : int
        Stop after so many orders.
    **machine
        More arguments of the machines.

    Returns
    -------
    (int, bool)
        How many orders were run, and whether they were all.

    Raises
    ------
    InterleavingError
        The program raised in one of them; holds the failing order.
    """
    choices: list[int] | None = []
    runs = 0
    while choices is not None and runs < max_runs:
        script = _Script(choices)
        vm = VirtualMachine(choose=script.choose, **machine)
        try:
            program(vm)
        except Exception as error:
            raise InterleavingError(error, script.choices, vm.program()) from error
        runs += 1
        choices = script.next()
    return runs, choices is None
